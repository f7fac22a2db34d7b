"""A file with states is verified inference after inference; the sums are made by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from wording import has

from fleetrank.device_agents.contract.runtime import Array, LoadedModel
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError
from fleetrank.device_agents.runtimes.runner import create_runner
from fleetrank.device_agents.worker.chained_runs import is_chain, run_chain
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.vocabulary import Runtime
from fleetrank.foundation.workload import Workload

N_SLOTS = 6


def save_sums(path: Path, *, outputs: Sequence[str] = ("total", "next_sums")) -> None:
    """`next_sums = sums + the sum of added`, and `total` is the sum over `next_sums`."""
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["added"], ["all"], keepdims=0),
            helper.make_node("Add", ["sums", "all"], ["next_sums"]),
            helper.make_node("ReduceSum", ["next_sums"], ["total"], keepdims=1),
        ],
        "sums",
        [
            tensor("added", TensorProto.FLOAT, [1, "tokens"]),
            tensor("sums", TensorProto.FLOAT, [1, N_SLOTS]),
        ],
        [
            tensor(name, TensorProto.FLOAT, [1, 1] if name == "total" else [1, N_SLOTS])
            for name in outputs
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, str(path))


def execution(workload: str, n_tokens: int) -> Execution:
    def one(name: str, size: int, state: str | None = None) -> ModelInput:
        return ModelInput(name=name, shape=(1, size), dtype="float32", values=Values(), state=state)

    return Execution(
        runtime=Runtime.ONNX,
        backend="cpu",
        inputs=(one("added", n_tokens), one("sums", N_SLOTS, "next_sums")),
        workload=Workload.parse(workload),
    )


def run(path: Path, stored: dict[str, Array], way: Execution) -> list[Array]:
    opened: list[Execution] = []

    def load(phase: Execution) -> LoadedModel:
        opened.append(phase)
        return create_runner(Runtime.ONNX).load(str(path), phase)

    assert is_chain(stored)
    found = run_chain(stored, way, load)
    assert [str(phase.workload) for phase in opened] in [["decode@6"], ["prefill@3", "decode@6"]]
    return found


def test_each_inference_reads_the_states_of_the_one_before(tmp_path: Path) -> None:
    save_sums(tmp_path / "m.onnx")
    added = np.array([[[1.0]], [[10.0]], [[100.0]]], np.float32)
    stored = {"input_0": added, "input_1": np.array([1.0, 2.0], np.float32),
              "every_1": np.array(5)}  # fmt: skip
    total, state = run(tmp_path / "m.onnx", stored, execution("decode@6", 1))
    # Six slots start as 1, 2, 1, 2, 1, 2: their sum is 9, and each gains what is added.
    assert total.tolist() == [[9.0 + 6], [9.0 + 66], [9.0 + 666]]
    assert state.tolist() == [112.0, 113.0]


def test_steps_go_on_from_the_states_of_the_prompt(tmp_path: Path) -> None:
    save_sums(tmp_path / "m.onnx")
    stored = {
        "input_0": np.array([[[1.0, 2.0, 3.0]]], np.float32),
        "step_0": np.array([[[10.0]], [[20.0]]], np.float32),
        "input_1": np.zeros(1, np.float32),
        "every_1": np.array(1),
    }
    total, state = run(tmp_path / "m.onnx", stored, execution("generate@3+3", 3))
    assert total.tolist() == [[36.0], [96.0], [216.0]]
    assert state.tolist() == [36.0] * N_SLOTS


def test_a_file_without_its_states_is_refused(tmp_path: Path) -> None:
    save_sums(tmp_path / "m.onnx", outputs=["total"])
    stored = {"input_0": np.ones((1, 1, 1), np.float32), "input_1": np.ones(1, np.float32),
              "every_1": np.array(1)}  # fmt: skip
    with pytest.raises(UnsupportedError) as refused:
        run(tmp_path / "m.onnx", stored, execution("decode@6", 1))
    assert has(refused.value.message, "next_sums", "total")
    # A runtime without names cannot see it.
    way = execution("decode@6", 1)
    nameless = replace(way, inputs=tuple(replace(one, state=None) for one in way.inputs))
    with pytest.raises(BadArtifactError) as caught:
        run(tmp_path / "m.onnx", stored, nameless)
    assert has(caught.value.message, "1 outputs", "1", "states")


def test_a_file_with_other_inputs_is_a_bad_artifact(tmp_path: Path) -> None:
    save_sums(tmp_path / "m.onnx")
    stored = {"input_0": np.ones((1, 1, 1), np.float32), "input_1": np.ones(1, np.float32),
              "input_2": np.ones((1, 1, 1), np.float32), "every_1": np.array(1)}  # fmt: skip
    with pytest.raises(BadArtifactError) as caught:
        run(tmp_path / "m.onnx", stored, execution("decode@6", 1))
    assert has(caught.value.message, "2 inputs", "3")
