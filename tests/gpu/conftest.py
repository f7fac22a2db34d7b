"""A real GPU, or the reason why there is none; needs pytest, NumPy and the runtimes alone."""

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleetrank.device_agents.contract.task import (
    Execution,
    MeasurePolicy,
    MeasureTask,
    RepeatLimits,
)
from fleetrank.device_agents.cuda.agent import CudaAgent
from fleetrank.device_agents.cuda.nvml import open_nvml
from fleetrank.device_agents.errors import AgentError
from fleetrank.foundation.vocabulary import Mode, Precision, Runtime

QUICK = MeasurePolicy(min_warmup_s=0.1, max_warmup_s=2.0, max_time_s=1.0, energy_s=0.0)
DTYPES = {Precision.FP32: "float32", Precision.FP16: "float16", Precision.BF16: "bfloat16"}


@pytest.fixture(scope="session")
def agent() -> CudaAgent:
    try:
        open_nvml()
        found = CudaAgent({})
        found.probe()
    except AgentError as error:
        pytest.skip(f"no GPU to test on: {error.message}")
    return found


@pytest.fixture(scope="session")
def torch() -> object:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


Pt2 = Callable[[Precision], Path]


@pytest.fixture(scope="session")
def pt2_of(torch, tmp_path_factory: pytest.TempPathFactory) -> Pt2:
    """A network of 2 million parameters, exported on the processor as everything is."""

    def make(precision: Precision) -> Path:
        path = folder / f"{precision}.pt2"
        if not path.exists():
            torch.manual_seed(0)
            nn, dtype = torch.nn, getattr(torch, DTYPES[precision])
            layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)]
            head = [nn.AdaptiveAvgPool2d(16), nn.Flatten(), nn.Linear(64 * 256, 128)]
            network = nn.Sequential(*layers, *head).eval().to(dtype)
            image = torch.zeros(1, 3, 64, 64, dtype=dtype)
            torch.export.save(torch.export.export(network, (image,)), str(path))
        if torch.cuda.is_initialized():
            pytest.fail("exporting opened the GPU here: this process is company to every repeat")
        return path

    folder = tmp_path_factory.mktemp("pt2")
    return make


@pytest.fixture(scope="session")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    onnx = pytest.importorskip("onnx", reason="onnx, which makes the file, is not installed")
    helper = onnx.helper
    weights = np.random.default_rng(0).standard_normal((64, 3, 3, 3), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "conv",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3, 64, 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 64, 64, 64])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path_factory.mktemp("onnx") / "conv.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def need_provider(name: str) -> None:
    ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    if name not in ort.get_available_providers():
        pytest.skip(f"this ONNX Runtime ({ort.__version__}) has no {name}")


def need_triton() -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton, which torch.compile needs on a GPU, is not installed")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def task_of(path: Path, runtime: Runtime = Runtime.TORCH, **changes: object) -> MeasureTask:
    """A short repeat; `changes` are fields of its execution."""
    execution = Execution(runtime=runtime, backend="cuda", mode=Mode.EAGER)
    return MeasureTask(
        task_id="t",
        artifact_path=str(path),
        artifact_sha256=sha256(path),
        execution=replace(execution, **changes),  # type: ignore[arg-type]
        is_trusted=True,
        policy=QUICK,
        limits=RepeatLimits(timeout_s=300.0),
    )
