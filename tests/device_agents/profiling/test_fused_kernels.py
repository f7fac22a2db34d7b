"""A fused kernel belongs to the module of the node that does the work."""

import warnings
from pathlib import Path

import pytest

from fleetrank.device_agents.profiling.onnx_graph import GraphNode, NodeScope, scope_of_node
from fleetrank.device_agents.profiling.onnx_modules import NamedNodes
from fleetrank.foundation.vocabulary import Runtime
from tests.device_agents.conftest import make_task


def _node(
    name: str, operator: str, module: str | None, inputs: tuple[str, ...] = ("x",)
) -> GraphNode:
    """Its output has its name without `node_`."""
    scope = None if module is None else NodeScope(module=module, operator=operator.lower())
    output = name.removeprefix("node_")
    return GraphNode(name=name, operator=operator, inputs=inputs, outputs=(output,), scope=scope)


def _modules(nodes: list[GraphNode], kernels: dict[str, str]) -> list[str | None]:
    found = NamedNodes.of(nodes).scopes_of(list(kernels.items()))
    return [None if scope is None else scope.module for scope, _ in found]


_CONV_RELU = [
    _node("node_conv", "Conv", "features.0"),
    _node("n1", "Cast", None, ("conv",)),
    _node("node_relu", "Relu", "features.1", ("n1",)),
]


@pytest.mark.parametrize(
    ("kernel", "module"),
    [
        ("Conv", "features.0"),
        ("FusedConv", "features.0"),
        ("QLinearConv", "features.0"),
        ("Relu", "features.1"),
        ("MaxPool", "features.1"),
    ],
)
def test_the_work_is_done_by_the_node_of_the_kernels_operator(kernel: str, module: str) -> None:
    assert _modules(_CONV_RELU, {"relu_nchwc": kernel}) == [module]


def test_a_node_with_a_kernel_does_no_work_in_another_one() -> None:
    kernels = {"node_conv": "Conv", "relu_nchwc": "Conv"}
    assert _modules(_CONV_RELU, kernels) == ["features.0", "features.1"]


def test_of_two_branches_the_one_without_a_kernel_is_fused() -> None:
    nodes = [
        _node("node_conv_a", "Conv", "main.conv"),
        _node("node_norm_a", "BatchNormalization", "main.norm", ("conv_a",)),
        _node("node_conv_b", "Conv", "side.conv"),
        _node("node_norm_b", "BatchNormalization", "side.norm", ("conv_b",)),
        _node("node_add", "Add", "", ("norm_b", "norm_a")),
        _node("node_relu", "Relu", "act", ("add",)),
    ]
    kernels = {"norm_b_nchwc": "Conv", "relu_nchwc": "Conv"}
    assert _modules(nodes, kernels) == ["side.conv", "main.conv"]


def test_the_walk_ends_at_other_work_and_in_a_circle() -> None:
    nodes = [
        _node("node_conv", "Conv", "a"),
        _node("node_softmax", "Softmax", "b", ("conv",)),
        _node("node_relu", "Relu", "c", ("softmax", "relu")),
    ]
    assert _modules(nodes, {"relu_nchwc": "Conv"}) == ["c"]


def test_a_scale_in_a_product_is_no_product() -> None:
    nodes = [
        _node("node_matmul", "MatMul", "attention"),
        _node("node_mul", "Mul", "scale", ("matmul",)),
    ]
    assert _modules(nodes, {"node_mul/MatMulScaleFusion/": "FusedMatMul"}) == ["attention"]
    assert _modules(nodes, {"node_matmul/MatMulScaleFusion/": "FusedMatMul"}) == ["attention"]


def test_inputs_and_outputs_that_a_node_leaves_out_join_no_nodes() -> None:
    nodes = [
        GraphNode(name="node_conv", operator="Conv", inputs=(), outputs=("", "y"), scope=None),
        _node("node_relu", "Relu", "act", ("x", "")),
    ]
    assert _modules(nodes, {"relu_nchwc": "Conv"}) == ["act"]
    assert NamedNodes.of(nodes).worker_of("node_relu", "Conv", frozenset()) == "node_relu"


def test_a_layer_with_its_activation_has_the_name_of_the_layer() -> None:
    nodes = [_node("node_linear", "Gemm", "0"), _node("node_linear_1", "Gemm", "2")]
    kernels = {"fused node_linear": "FusedGemm", "node_linear_1": "Gemm"}
    found = NamedNodes.of(nodes).scopes_of(list(kernels.items()))
    assert [(scope and scope.module, is_inserted) for scope, is_inserted in found] == [
        ("0", False), ("2", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "rules", "module"),
    [
        (("x", "features.0.0.weight"), "FuseBatchNormIntoConv, Other", "features.0.0"),
        (("x", "features.0.0.weight"), "RemoveOptionalBiasFromConv", "features.0.1"),
        (("x", "val_3"), "FuseBatchNormIntoConv", "features.0.1"),
        (("x",), "FuseBatchNormIntoConv", "features.0.1"),
    ],
)
def test_a_layer_with_its_norm_has_the_module_of_its_weights(inputs, rules, module) -> None:
    scopes = "['', 'features', 'features.0', 'features.0.1', '_native_batch_norm_3']"
    scope = scope_of_node(inputs, {
        "pkg.torch.onnx.name_scopes": scopes, "pkg.onnxscript.rewriter.rule_name": rules,
    })  # fmt: skip
    assert scope.module == module


def _exported(path: Path, *, is_half: bool) -> Path:
    """Layers, norms and activations that are modules, as the exporter of PyTorch writes them."""
    import torch
    from torch import nn

    network = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(),
        nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 32), nn.ReLU(),
        nn.Linear(32, 8),
    )  # fmt: skip
    kind = torch.float16 if is_half else torch.float32
    network, images = network.eval().to(kind), torch.zeros(1, 3, 32, 32, dtype=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(network, (images,), str(path), dynamo=True, external_data=False)
    return path


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("is_half", [False, True])
def test_each_layer_of_an_exported_network_has_its_kernel(tmp_path: Path, *, is_half: bool) -> None:
    from fleetrank.device_agents.linux.worker_client import measure_in_worker

    path = _exported(tmp_path / "net.onnx", is_half=is_half)
    found = measure_in_worker(make_task(path, Runtime.ONNX, is_profiled=True))
    assert found.profile is not None, found.failure
    kernels = found.profile.kernels
    layers = [one.module for one in kernels if "Conv" in one.operator or "Gemm" in one.operator]
    assert layers == ["0", "2", "7", "9"]
    fused = {"1", "3", "4"} if is_half else {"1", "3", "4", "8"}
    assert not fused & {one.module for one in kernels}
    assert all(one.module is not None for one in kernels)
