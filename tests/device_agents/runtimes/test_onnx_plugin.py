"""Plugins of ONNX Runtime, with a real one that says more than it does."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.plugin_backends import plugin_of
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import MissingLibraryError, UnsupportedError
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.device_agents.profiling.profiler import why_not_profiled
from fleetrank.device_agents.runtimes import onnx_plugins
from fleetrank.device_agents.runtimes.onnx_runner import OnnxRunner
from fleetrank.device_agents.runtimes.runner import why_unsupported
from fleetrank.foundation.vocabulary import ErrorKind, Runtime, Status
from tests.device_agents.conftest import make_task


def network(file: Path, layers: list[tuple[str, tuple[int, ...]]], width: tuple[int, ...]) -> Path:
    """A chain of layers and a ReLU after each; those with sizes have weights."""
    rng, nodes, weights, last = np.random.default_rng(0), [], [], "x"
    for number, (operator, sizes) in enumerate(layers):
        inputs = [last]
        if sizes:
            values = rng.normal(size=sizes).astype(np.float32)
            weights.append(onnx.numpy_helper.from_array(values, f"w{number}"))
            inputs.append(f"w{number}")
        nodes.append(helper.make_node(operator, inputs, [f"a{number}"]))
        last = f"b{number}"
        nodes.append(helper.make_node("Relu", [f"a{number}"], [last]))
    ends = [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)]
    starts = [helper.make_tensor_value_info("x", TensorProto.FLOAT, width)]
    graph = helper.make_graph(nodes, "network", starts, ends, weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file
    )
    return file


def measured(file: Path, backend: str) -> Measurement:
    execution = Execution(runtime=Runtime.ONNX, backend=backend)
    return measure_in_worker(make_task(file, Runtime.ONNX, execution=execution, is_trusted=True))


# Not in the extra `dev`: it declares older versions of ONNX Runtime than the tests have.
INSTALL = "pip install --no-deps onnxruntime-ggml==0.2.0 (x86-64 Linux)"
CONVOLUTIONS = [("Conv", (8, 3, 3, 3)), ("Conv", (8, 8, 3, 3))]
IMAGE = (1, 3, 16, 16)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([*CONVOLUTIONS, ("GlobalAveragePool", ())], "plugin:ggml runs 0 of 6 nodes"),
        (CONVOLUTIONS, "plugin:ggml took 4 of 4 nodes and cannot run them"),
    ],
    ids=["takes_none", "takes_what_it_cannot_run"],
)
def test_a_plugin_that_runs_nothing_fails_with_the_count(
    layers: list[tuple[str, tuple[int, ...]]], message: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime_ggml", reason=INSTALL)
    seen = measured(network(tmp_path / "model.onnx", layers, IMAGE), "plugin:ggml")
    assert (seen.failure.kind, seen.failure.is_transient) == (ErrorKind.UNSUPPORTED, False)
    assert message in seen.failure.message


@pytest.mark.slow
def test_a_row_has_the_nodes_that_a_plugin_ran(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_ggml", reason=INSTALL)
    file = network(tmp_path / "model.onnx", [("MatMul", (16, 8)), ("MatMul", (8, 4))], (1, 16))
    seen = measured(file, "plugin:ggml")
    assert (seen.status, seen.backend_nodes, seen.graph_nodes) == (Status.OK, 4, 4)
    settings = dict(seen.worker.settings)
    assert (settings["plugin"], settings["plugin_version"]) == ("onnxruntime_ggml", "0.2.0")
    assert measured(file, "cpu").backend_nodes is None
    assert "the plugin offers cpu" in measured(file, "plugin:ggml:npu").failure.message


@pytest.mark.parametrize(
    "backend",
    ["plugin:", "plugin:../ggml", "plugin:/lib/x.so", "plugin:os.path", "plugin:a:tpu", "plugin:A"],
)
def test_a_plugin_is_never_a_path(backend: str) -> None:
    assert plugin_of(backend) is None
    refusal = why_unsupported(Execution(runtime=Runtime.ONNX, backend=backend))
    assert refusal is not None
    assert "plugin:NAME" in refusal


def test_only_packages_for_onnx_runtime_can_be_named() -> None:
    execution = Execution(runtime=Runtime.ONNX, backend="plugin:json:npu")
    assert why_unsupported(execution) is None
    assert why_unsupported(Execution(runtime=Runtime.TORCH, backend="plugin:json")) is not None
    assert why_not_profiled(execution) is not None
    with pytest.raises(MissingLibraryError, match="needs onnxruntime-ep-json or onnxruntime-json"):
        OnnxRunner().load("unread.onnx", execution)


def test_of_several_kinds_of_devices_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, npu = (
        SimpleNamespace(device=SimpleNamespace(type=SimpleNamespace(name=name)))
        for name in ("GPU", "NPU")
    )
    with pytest.raises(UnsupportedError, match="several devices: gpu, npu"):
        onnx_plugins._plugin_device([gpu, npu], "plug", None)
    assert onnx_plugins._plugin_device([gpu, npu], "plug", "npu") is npu
    assert onnx_plugins._plugin_device([gpu, gpu], "plug", None) is gpu
    with pytest.raises(UnsupportedError, match="the plugin offers gpu"):
        onnx_plugins._plugin_device([gpu], "plug", "npu")
