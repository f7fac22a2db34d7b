"""A network in int8: exported, verified and measured where integers are computed with."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from world import NETWORK, World

from fleetrank.device_agents.runtimes.onnx_runner import kernels_of

pytestmark = pytest.mark.export


def check(rows: list[dict[str, object]]) -> None:
    """Rows of int8: exported, verified by a worker, and computed with integers throughout."""
    for row in rows:
        runtime = row["runtime"]
        assert row["status"] == "ok", (runtime, row["error_message"])
        assert row["recipe"].endswith("/1, 16 seeded")
        assert row["border"] == "float"
        assert 20 < row["artifact_snr_db"] < 60
        assert row["artifact_top1_agreement"] > 0.5
        assert row["snr_db"] == pytest.approx(row["artifact_snr_db"], abs=1)
        assert row["top1_agreement"] > 0.5
        assert (row["integer_products"], row["products"]) == (2, 2), runtime


def measured(folder, changes: str) -> dict[tuple[str, str], dict[str, object]]:
    """The rows of a sweep of its own, by precision and runtime."""
    (folder.root / "cards" / "mine.toml").write_text(NETWORK)
    path = folder.write_spec(["mine"], ["local-cpu"], repeats=1)
    path.write_text(path.read_text().replace("runtimes: [onnx]", changes))
    assert folder.call("sweep", "run", "t", "--inline").returncode == 0
    return {(row["precision"], row["runtime"]): row for row in folder.rows()}


def test_a_network_is_measured_with_integers(world: World) -> None:
    rows = world.rows("networks")
    assert [(row["precision"], row["runtime"]) for row in rows] == [("int8", "onnx")]
    check(rows)


@pytest.mark.thorough
def test_a_precision_can_name_another_recipe(folder) -> None:
    wanted = "runtimes: [onnx, tflite]\nprecision: [int8-dynamic, int8-s8s8, w8a16]"
    rows = measured(folder, wanted)
    plan = folder.call("sweep", "plan", "t", "--json").stdout
    assert len(json.loads(plan)["skipped"]) == 2
    assert {place: row["recipe"] for place, row in rows.items()} == {
        ("int8-dynamic", "onnx"): "dynamic-matmul/1",
        ("int8-dynamic", "tflite"): "dynamic-wi8/1",
        ("int8-s8s8", "onnx"): "qdq-s8s8/1, 16 seeded",
        ("w8a16", "tflite"): "static-wi8-ai16/1, 16 seeded",
    }
    for place, row in rows.items():
        assert (row["status"], row["border"]) == ("ok", "float"), (place, row["error_message"])
        assert row["artifact_snr_db"] > 20
    counted = {place: (row["integer_products"], row["products"]) for place, row in rows.items()}
    # Of ONNX Runtime the convolution stays in float.
    assert counted.pop(("int8-dynamic", "onnx")) == (1, 2)
    assert set(counted.values()) == {(2, 2)}


def test_products_in_a_branch_are_counted(tmp_path) -> None:
    branch = [
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node(end, ["h"], ["o"])],
            end, [], [helper.make_tensor_value_info("o", TensorProto.FLOAT, [1, 2])],
        )
        for end in ("Relu", "Abs")
    ]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")],
    )
    assert kernels_of(helper.make_model(graph).SerializeToString()) == ["MatMul", "MatMul"]


def test_a_file_that_computes_with_floats_only_fails_with_the_count(world: World) -> None:
    rows = {row["model"]: row for row in world.rows("files")}
    good, bad = rows["integers"], rows["floats"]
    seen = (good["status"], good["integer_products"], good["products"])
    assert seen == ("ok", 1, 1), good["error_message"]
    assert (bad["status"], bad["error_kind"]) == ("failed", "unsupported")
    assert bad["error_message"] == "0 of 1 products of this int8 file compute with integers"


@pytest.mark.thorough
def test_a_decoder_is_measured_with_weights_of_integers(folder) -> None:
    path = folder.write_spec(["stories260k"], ["local-cpu"], repeats=1)
    path.write_text(f"{path.read_text()}precision: int4\nworkloads: [decode@8]\n")
    assert folder.call("sweep", "run", "t", "--inline").returncode == 0
    (row,) = folder.rows()
    assert row["recipe"] == "matmul-nbits4/1"
    # Seven matrices in each of five layers, and the head.
    assert (row["integer_products"], row["products"]) == (36, 36)
    assert 5 < row["artifact_snr_db"] < 20
    assert row["snr_db"] == pytest.approx(row["artifact_snr_db"], abs=1)
    # The table of tokens is fp32, its copy for the head and all other matrices have 4 bits.
    assert 4 * row["parameters"] / 5 < row["weight_bytes"] < row["artifact_bytes"]
    assert row["bytes_moved"] < row["parameters"]
