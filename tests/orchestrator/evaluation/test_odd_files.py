"""Evaluations of files whose numbers are not plain: not finite, or quantised."""

from pathlib import Path

import numpy as np
import pytest
from daily import daily
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from stored_evaluations import evaluated

pytestmark = pytest.mark.slow


def _levels(folder: Path, n_classes: int) -> Path:
    """Images of one grey level for each class."""
    for number in range(n_classes):
        place = folder / "levels" / f"{number}"
        place.mkdir(parents=True)
        Image.new("L", (2, 2), 40 * number).save(place / "x.png")
    return folder / "levels"


def _file(path: Path, node: str, n_classes: int) -> Path:
    """An image of 4 equal values becomes the scores `node(value * weight + bias)`."""
    weight = np.tile(np.arange(n_classes, dtype="float32"), (4, 1))
    bias = -80 * np.arange(n_classes, dtype="float32") ** 2 - 1
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node("Gemm", ["flat", "weight", "bias"], ["sum"]),
            helper.make_node(node, ["sum"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, n_classes])],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("node", "right", "flags"),
    daily([("Identity", 100, []), ("Log", 0, ["not_finite"])], "Log"),
)
def test_images_whose_scores_are_not_finite_are_wrong(
    folder: Path, tmp_path: Path, node: str, right: float, flags: list[str]
) -> None:
    path = _file(tmp_path / f"{node}.onnx", node, 6)
    found = evaluated(
        folder, "images", "--model", str(path), "--data", str(_levels(tmp_path, 6)),
        "--crop", "1", "--mean", "0", "--std", str(1 / 255),
    )  # fmt: skip
    assert [found[f"images {name}"]["quality"] for name in ("top1", "top5")] == [right, right]
    assert found["images top1"]["flags"] == found["images top5"]["flags"] == flags
    assert found["images top5"]["baseline"] == pytest.approx(100 * 5 / 6)
