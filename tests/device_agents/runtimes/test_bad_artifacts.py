"""Damaged, hostile and odd files: a clear failure, nothing executed.

A file that may end the process of its runtime goes through a real worker.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from daily import daily
from onnx import TensorProto, helper

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import Execution, MeasureTask, Options
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.device_agents.runtimes.declared_inputs import with_batch
from fleetrank.device_agents.worker.infer import infer
from fleetrank.foundation.vocabulary import ErrorKind, Mode, Runtime, Status
from tests.device_agents.conftest import MakeTask, infer_task, make_task, measure_here

Run = Callable[[MeasureTask], Measurement]


def kind_of(
    task: MeasureTask, run: Run = measure_here, *, is_transient: bool = False
) -> tuple[ErrorKind, str]:
    seen = run(task)
    assert seen.status is Status.FAILED
    assert seen.failure.is_transient is is_transient
    assert seen.failure.remedy
    return seen.failure.kind, seen.failure.message


@pytest.mark.parametrize("runtime", daily(Runtime, Runtime.ONNX, Runtime.TFLITE))
@pytest.mark.parametrize("data", daily([b"this is a text file\n", b""], b"this is a text file\n"))
def test_a_file_of_another_kind_is_refused(runtime: Runtime, data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    assert kind_of(make_task(file, runtime), measure_in_worker)[0] is ErrorKind.BAD_ARTIFACT


@pytest.mark.parametrize("runtime", daily(Runtime, Runtime.ONNX, Runtime.TFLITE))
def test_a_file_cut_in_half_is_refused(
    runtime: Runtime, artifacts: dict[Runtime, Path], tmp_path: Path
) -> None:
    whole = artifacts[runtime].read_bytes()
    file = tmp_path / f"half{artifacts[runtime].suffix}"
    file.write_bytes(whole[: len(whole) // 2])
    kind, _message = kind_of(make_task(file, runtime, is_trusted=True), measure_in_worker)
    # LiteRT does not verify the whole file and may die of it; that ends one worker, no more.
    assert kind in {ErrorKind.BAD_ARTIFACT, ErrorKind.CRASHED}


@pytest.mark.parametrize("runtime", daily(Runtime, Runtime.ONNX, Runtime.EXECUTORCH))
def test_a_file_that_changed_since_it_was_made_is_not_opened(
    runtime: Runtime, task_of: MakeTask, artifacts: dict[Runtime, Path], tmp_path: Path
) -> None:
    data = bytearray(artifacts[runtime].read_bytes())
    data[len(data) // 2] ^= 0xFF
    file = tmp_path / "changed"
    file.write_bytes(data)
    task = replace(task_of(runtime), artifact_path=str(file))
    kind, message = kind_of(task, is_transient=True)
    assert kind is ErrorKind.BAD_ARTIFACT
    assert "has changed" in message


def test_a_file_that_is_gone_condemns_no_cell_since_a_resume_exports_it_again(
    tmp_path: Path, task_of: MakeTask
) -> None:
    task = replace(task_of(Runtime.ONNX), artifact_path=str(tmp_path / "none.onnx"))
    assert kind_of(task, is_transient=True)[0] is ErrorKind.BAD_ARTIFACT


def test_external_data_outside_the_folder_is_not_read(onnx_file: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    secret = tmp_path / "secret"
    secret.write_bytes(np.zeros(4 * 3 * 3 * 3, dtype=np.float32).tobytes())
    model = onnx.load(str(onnx_file))
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../secret")
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    assert kind_of(make_task(folder / "model.onnx", Runtime.ONNX))[0] is ErrorKind.BAD_ARTIFACT


def test_an_unknown_operator_is_unsupported(onnx_file: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(str(onnx_file))
    model.graph.node[0].op_type = "Teleport"
    file = tmp_path / "teleport.onnx"
    file.write_bytes(model.SerializeToString())
    kind, message = kind_of(make_task(file, Runtime.ONNX))
    assert kind is ErrorKind.UNSUPPORTED
    assert "Teleport" in message


@pytest.mark.parametrize(
    ("runtime", "options"),
    daily(
        [
            (
                Runtime.ONNX,
                (("flush_denormals", True), ("spinning", False), ("x64_quant_precision", True)),
            ),
            (Runtime.TORCH, (("flush_denormals", True),)),
        ],
        Runtime.ONNX,
    ),
)
def test_options_are_given_to_the_runtime_and_recorded(
    runtime: Runtime, options: Options, task_of: MakeTask
) -> None:
    task = task_of(runtime)
    seen = measure_in_worker(replace(task, execution=replace(task.execution, options=options)))
    assert seen.status is Status.OK, seen.failure
    assert set(options) <= set(seen.worker.settings)


@pytest.mark.parametrize("runtime", daily([Runtime.TORCH, Runtime.TFLITE], Runtime.TFLITE))
def test_a_file_of_another_batch_is_not_measured_under_a_false_name(
    runtime: Runtime, task_of: MakeTask
) -> None:
    task = task_of(runtime)
    kind, message = kind_of(replace(task, execution=replace(task.execution, batch=2)))
    assert kind is ErrorKind.UNSUPPORTED
    assert "batch" in message


def test_an_option_of_the_wrong_type_is_unsupported(task_of: MakeTask) -> None:
    task = task_of(Runtime.ONNX)
    execution = replace(task.execution, options=(("spinning", "no"),))
    assert kind_of(replace(task, execution=execution))[0] is ErrorKind.UNSUPPORTED


@pytest.mark.thorough
def test_compiling_without_a_compiler_says_so(
    task_of: MakeTask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    task = task_of(Runtime.TORCH, is_trusted=True)
    task = replace(task, execution=replace(task.execution, mode=Mode.COMPILE))
    kind, message = kind_of(task, measure_in_worker)
    assert kind is ErrorKind.UNSUPPORTED, message


def test_a_free_batch_is_set_to_the_task_s(onnx_file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", input_0=np.ones((2, 3, 16, 16), dtype=np.float32))
    task = infer_task(
        onnx_file, tmp_path, execution=Execution(runtime=Runtime.ONNX, backend="cpu", batch=5)
    )
    assert infer(task, lambda _: None, None) is None
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["output_0"].shape == (2, 4, 16, 16)


@pytest.mark.parametrize(
    ("sizes", "shape"), [([None, 3], (5, 3)), ([2, 3], (2, 3)), ([], ()), ([None], (5,))]
)
def test_only_the_first_size_may_be_free(sizes: list[int | None], shape: tuple[int, ...]) -> None:
    assert with_batch("x", sizes, 5) == shape
    with pytest.raises(UnsupportedError, match=r"'x' has dynamic sizes.*\?\]"):
        with_batch("x", [*sizes, 4, None], 5)


def test_a_file_whose_image_size_is_free_is_refused_not_measured_at_one_pixel(
    tmp_path: Path,
) -> None:
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [image], [result])
    opsets = [helper.make_opsetid("", 17)]
    file = tmp_path / "free.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(file))
    kind, message = kind_of(make_task(file, Runtime.ONNX))
    assert kind is ErrorKind.UNSUPPORTED
    assert "[1, 3, ?, ?]" in message


@pytest.mark.parametrize(
    "stored",
    [
        {"input_0": np.zeros((1, 3, 8, 8))},
        {"input_0": np.zeros((1, 3, 16, 16)), "input_1": np.zeros(1)},
    ],
    ids=["shape", "count"],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_a_failure(
    stored: dict[str, np.ndarray], onnx_file: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", **stored)  # type: ignore[arg-type]
    task = infer_task(onnx_file, tmp_path)
    failure = infer(task, lambda _: None, None)
    assert failure.kind is ErrorKind.BAD_ARTIFACT
