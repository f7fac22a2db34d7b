"""Profiles of real files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.foundation.vocabulary import ErrorKind, Mode, Runtime, Status
from fleetrank.foundation.workload import Workload
from tests.device_agents.conftest import make_task, measure_here

pytestmark = pytest.mark.slow

_SCOPES = "pkg.torch.onnx.name_scopes"


@pytest.fixture
def named_onnx(tmp_path: Path) -> Path:
    """Two convolutions, of which ONNX Runtime changes the layout and fuses the activation."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    first = rng.standard_normal((16, 3, 3, 3), dtype=np.float32)
    second = rng.standard_normal((16, 16, 3, 3), dtype=np.float32)
    nodes = [
        (helper.make_node("Conv", ["x", "v"], ["a"], "conv_a", pads=[1, 1, 1, 1]), "stem.conv"),
        (helper.make_node("Relu", ["a"], ["b"], "relu_b"), "stem.act"),
        (helper.make_node("Conv", ["b", "w"], ["c"], "conv_c", pads=[1, 1, 1, 1]), "body.conv"),
        (helper.make_node("ReduceMean", ["c"], ["y"], "mean_y", axes=[2, 3]), ""),
    ]
    for node, module in nodes:
        scopes = ["", *([module] if module else []), node.name]
        node.metadata_props.add(key=_SCOPES, value=str(scopes))
    graph = helper.make_graph(
        [node for node, _ in nodes],
        "named",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 1, 1])],
        [numpy_helper.from_array(first, "v"), numpy_helper.from_array(second, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "named.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(path))
    return path


def _profiled(path: Path, runtime: Runtime) -> Measurement:
    return measure_here(make_task(path, runtime, is_profiled=True))


def test_every_kernel_of_onnx_belongs_to_a_module(named_onnx: Path) -> None:
    """In a real worker, whose walls let the profiler write its file."""
    found = measure_in_worker(make_task(named_onnx, Runtime.ONNX, is_profiled=True))
    assert found.status is Status.OK, found.failure
    assert found.samples_ns == (), "a profile is no latency"
    kernels = found.profile.kernels
    assert {one.module for one in kernels} <= {"stem.conv", "stem.act", "body.conv", ""}
    assert {"Conv", "ReduceMean"} <= {one.operator for one in kernels}
    assert sum(one.kernel_ns for one in kernels) > 0
    assert found.profile.run_ns >= sum(one.kernel_ns for one in kernels) / 2
    assert found.worker.confinement is not None


def test_a_file_without_names_of_modules_is_profiled_by_operator(onnx_file: Path) -> None:
    found = _profiled(onnx_file, Runtime.ONNX)
    assert found.profile is not None, found.failure
    assert {one.module for one in found.profile.kernels} == {None}
    assert "Conv" in {one.operator for one in found.profile.kernels}


def test_what_cannot_be_profiled_says_why(onnx_file: Path) -> None:
    task = make_task(onnx_file, Runtime.ONNX, is_profiled=True)
    generate = replace(task.execution, workload=Workload.parse("generate@8+8"))
    for execution in (
        Execution(runtime=Runtime.TFLITE, backend="xnnpack"),
        Execution(runtime=Runtime.TORCH, backend="cpu", mode=Mode.COMPILE),
        generate,
    ):
        found = measure_here(replace(task, execution=replace(execution, is_profiled=True)))
        assert found.failure.kind is ErrorKind.UNSUPPORTED
        assert found.profile is None


def test_each_node_of_a_pt2_file_is_timed_once_and_belongs_to_its_module(pt2_file: Path) -> None:
    import torch

    found = _profiled(pt2_file, Runtime.TORCH)
    assert found.profile is not None, found.failure
    nodes = torch.export.load(pt2_file).module().graph.nodes
    calls = {node.name for node in nodes if node.op == "call_function"}
    kernels = found.profile.kernels
    assert {one.node for one in kernels} - calls == set()
    assert {one.calls for one in kernels} == {1}
    assert all(one.module is not None for one in kernels)
    assert any(one.operator.startswith("conv") for one in kernels)


@pytest.mark.parametrize(
    ("stack", "module"),
    [
        ({"L__self__": ("", "Net"), "L__self___a": ("blocks.0.a", "Linear")}, "blocks.0.a"),
        ({"L__self__": ("", "Net")}, ""),
        ({}, None),
        (None, None),
        ({"a": 3}, None),
    ],
)
def test_the_module_of_a_node_is_the_innermost_one(stack: object, module: str | None) -> None:
    from fleetrank.device_agents.profiling.torch_profiler import module_of

    assert module_of(stack) == module


@pytest.mark.thorough
def test_a_pte_file_is_profiled_by_operator(pte_file: Path) -> None:
    found = _profiled(pte_file, Runtime.EXECUTORCH)
    assert found.profile is not None, found.failure
    kernels = found.profile.kernels
    assert {one.module for one in kernels} == {None}
    assert all("#" not in one.operator and "CALL" not in one.operator for one in kernels)
    total_ns = sum(one.kernel_ns for one in kernels)
    assert 0 < total_ns <= found.profile.run_ns, "no event that contains kernels is counted too"


@pytest.mark.thorough
def test_a_pte_file_from_outside_needs_trust(pte_file: Path) -> None:
    found = measure_in_worker(make_task(pte_file, Runtime.EXECUTORCH, is_profiled=True))
    assert "trust" in found.failure.remedy
