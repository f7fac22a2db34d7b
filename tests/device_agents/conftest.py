"""Tiny real artifacts in every format, made once per session."""

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_onnx import save_huge, save_looping

from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
from fleetrank.device_agents.contract.task import (
    Execution,
    InferTask,
    MeasurePolicy,
    MeasureTask,
    RepeatLimits,
)
from fleetrank.device_agents.worker.run import Caller
from fleetrank.foundation.vocabulary import Runtime

QUICK = MeasurePolicy(
    min_warmup_runs=2, min_warmup_s=0.0, max_warmup_s=0.05, min_runs=8, max_time_s=2.0,
    half_width=0.5,
)  # fmt: skip
BACKENDS = {
    Runtime.ONNX: "cpu",
    Runtime.TORCH: "cpu",
    Runtime.TFLITE: "xnnpack",
    Runtime.EXECUTORCH: "xnnpack",
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_task(
    path: Path,
    runtime: Runtime,
    *,
    timeout_s: float = 60.0,
    is_profiled: bool = False,
    **changes: object,
) -> MeasureTask:
    fields: dict[str, object] = {
        "task_id": "task-1",
        "artifact_path": str(path),
        "artifact_sha256": sha256(path),
        "execution": Execution(runtime=runtime, backend=BACKENDS[runtime], is_profiled=is_profiled),
        "policy": QUICK,
        "limits": RepeatLimits(timeout_s=timeout_s),
        "macs_and_parameters": (1_000_000, 1_000),
    }
    return MeasureTask(**{**fields, **changes})  # type: ignore[arg-type]


def plain_task(**changes: object) -> MeasureTask:
    """A task whose file is nowhere."""
    fields: dict[str, object] = {
        "task_id": "t",
        "artifact_path": "/a",
        "artifact_sha256": "0",
        "execution": Execution(runtime=Runtime.ONNX, backend="cpu"),
    }
    return MeasureTask(**{**fields, **changes})  # type: ignore[arg-type]


def infer_task(path: Path, folder: Path, **changes: object) -> InferTask:
    """Runs a file over `in.npz` in a folder, and writes `out.npz` beside it."""
    fields: dict[str, object] = {
        "task_id": "v",
        "artifact_path": str(path),
        "artifact_sha256": sha256(path),
        "execution": Execution(runtime=Runtime.ONNX, backend="cpu"),
        "inputs_path": str(folder / "in.npz"),
        "outputs_path": str(folder / "out.npz"),
    }
    return InferTask(**{**fields, **changes})  # type: ignore[arg-type]


def measure_here(task: MeasureTask) -> Measurement:
    """What a worker does with a trusted file, in this process: a process is not the subject."""
    from fleetrank.device_agents.worker.measure import measure

    with warnings.catch_warnings(action="ignore"):  # importing ExecuTorch warns
        return measure(task, WorkerFacts(), Caller(enter=lambda _: None), None)


def save_check(folder: Path, inputs: np.ndarray, outputs: np.ndarray) -> str:
    """What a device compares a file with, named by its content."""
    path = folder / "check.npz"
    np.savez(path, input_0=inputs, output_0=outputs)
    return str(path.rename(folder / f"{sha256(path)}.npz"))


@pytest.fixture(scope="session")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 3 x 3 convolution with a free batch."""
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "tiny",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4, 16, 16])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path_factory.mktemp("onnx") / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


@pytest.fixture(scope="session")
def pt2_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU()).eval()
    path = tmp_path_factory.mktemp("pt2") / "tiny.pt2"
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 16, 16),)), path)
    return path


@pytest.fixture(scope="session")
def tflite_file() -> Path:
    """Recorded, because converting takes seconds and a heavy library; see tests/data."""
    return Path(__file__).parent / "data" / "tiny.tflite"


@pytest.fixture(scope="session")
def pte_file() -> Path:
    """Recorded, because lowering takes seconds and a heavy library; see tests/data."""
    return Path(__file__).parent / "data" / "tiny.pte"


class Artifacts(dict[Runtime, Path]):
    """A file of each runtime, made when it is first asked for: PyTorch takes seconds to load."""

    def __init__(self, fixture: Callable[[str], Path]) -> None:
        super().__init__()
        self._fixture = fixture

    def __missing__(self, runtime: Runtime) -> Path:
        names = {Runtime.TORCH: "pt2_file", Runtime.EXECUTORCH: "pte_file"}
        self[runtime] = self._fixture(names.get(runtime, f"{runtime}_file"))
        return self[runtime]


@pytest.fixture(scope="session")
def artifacts(request: pytest.FixtureRequest) -> Artifacts:
    return Artifacts(request.getfixturevalue)


@pytest.fixture(scope="session")
def looping_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    return save_looping(tmp_path_factory.mktemp("loop") / "loop.onnx")


@pytest.fixture(scope="session")
def huge_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    return save_huge(tmp_path_factory.mktemp("huge") / "huge.onnx")


MakeTask = Callable[..., MeasureTask]


@pytest.fixture
def task_of(artifacts: dict[Runtime, Path]) -> MakeTask:
    def make(runtime: Runtime, **changes: object) -> MeasureTask:
        return make_task(artifacts[runtime], runtime, **changes)

    return make
