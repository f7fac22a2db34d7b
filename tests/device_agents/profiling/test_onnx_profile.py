"""Kernels of ONNX Runtime's profile, and the modules that they belong to."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.errors import BadOutputError
from fleetrank.device_agents.profiling.onnx_events import runs_of
from fleetrank.device_agents.profiling.onnx_graph import (
    GraphNode,
    NodeScope,
    read_graph,
    scope_of_text,
)
from fleetrank.device_agents.profiling.onnx_modules import NamedNodes


def _node(name: str, module: str, operator: str, output: str) -> GraphNode:
    scope = NodeScope(module=module, operator=operator)
    return GraphNode(name=name, operator="Conv", inputs=(), outputs=(output,), scope=scope)


NODES = NamedNodes.of(
    [
        _node("node_conv", "stem.conv", "conv2d", "relu_1"),
        _node("node_matmul", "blocks.0.mlp", "linear", "mm"),
        _node("node_mean", "", "mean", "mean"),
    ]
)


def _event(
    name: str, ts: int, dur: int, cat: str = "Node", **arguments: object
) -> dict[str, object]:
    return {"cat": cat, "name": name, "ts": ts, "dur": dur, "args": arguments}


@pytest.mark.parametrize(
    ("kernel", "node"),
    [
        ("node_conv", "node_conv"),
        ("relu_1_nchwc", "node_conv"),
        ("InsertedPrecisionFreeCast_relu_1_nchwc", "node_conv"),
        ("InsertedPrecisionFreeCast_relu_1", None),
        ("fused node_matmul", "node_matmul"),
        ("node_matmul/MatmulTransposeFusion//MatMulScaleFusion/", "node_matmul"),
        ("ReorderInput_token_3", None),
        ("node_gone", None),
    ],
)
def test_a_kernel_is_found_by_the_name_of_its_node_or_of_its_output(kernel, node) -> None:
    assert NODES.node_of(kernel) == node


def test_an_inserted_kernel_counts_for_the_kernel_beside_it() -> None:
    names = [
        "ReorderInput",
        "relu_1_nchwc",
        "ReorderOutput",
        "Mul_7",
        "ReorderInput_t",
        "node_mean",
    ]
    found = NODES.scopes_of([(name, "") for name in names])
    assert [(scope and scope.module, is_inserted) for scope, is_inserted in found] == [
        ("stem.conv", True), ("stem.conv", False), ("stem.conv", True), ("stem.conv", True),
        ("", True), ("", False),
    ]  # fmt: skip


def test_a_file_without_names_has_no_modules() -> None:
    unnamed = GraphNode(name="conv", operator="Conv", inputs=("x",), outputs=("y",), scope=None)
    kernels = [("y_nchwc", "Conv"), ("ReorderOutput", "ReorderOutput")]
    assert NamedNodes.of([unnamed]).scopes_of(kernels) == [(None, False), (None, False)]


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        (
            "['', 'blocks.0', 'blocks.0.mlp', 'mul_3']",
            NodeScope(module="blocks.0.mlp", operator="mul"),
        ),
        ("['', 'mean']", NodeScope(module="", operator="mean")),
        ("['mean']", None),
        ("[1, 2, 3]", None),
        ("__import__('os')", None),
        ("(" * 9000, None),
        ("", None),
    ],
)
def test_the_module_is_the_name_before_the_last_one(text: str, scope: NodeScope | None) -> None:
    assert scope_of_text(text) == scope


def test_calls_are_sorted_into_their_runs() -> None:
    events = [
        _event("session_initialization", 0, 50, "Session"),
        _event("a_kernel_time", 101, 5, op_name="Conv", output_size="64", parameter_size="8"),
        _event("a_fence_before", 101, 0),
        _event("b_kernel_time", 110, 7, op_name="Relu"),
        _event("model_run", 100, 20, "Session"),
        _event("a_kernel_time", 131, 6, op_name="Conv", output_size="64", parameter_size="8"),
        _event("model_run", 130, 9, "Session"),
    ]
    first, second = runs_of(json.dumps(events))
    assert [(call.kernel, call.operator, call.ns) for call in first] == [
        ("a", "Conv", 5000), ("b", "Relu", 7000),
    ]  # fmt: skip
    assert (first[0].output_bytes, first[0].weight_bytes) == (64, 8)
    assert (first[1].output_bytes, first[1].weight_bytes) == (None, None)
    assert [call.ns for call in second] == [6000]


@pytest.mark.parametrize(
    ("operator", "shapes", "size", "weight_bytes"),
    [
        ("Gemm", [[1, 24], [10, 24], [10]], "1000", 1000),
        ("Gemm", [[1, 24], [10]], "40", None),
        ("FusedGemm", [[1, 24]], "0", None),
        ("MatMul", [[2, 3, 8]], "0", None),
        ("FusedMatMul", [[2, 4], [2, 8]], "0", 0),
    ],
)
def test_packed_weights_have_no_known_size(
    operator: str, shapes: list[list[int]], size: str, weight_bytes: int | None
) -> None:
    stated = {"input_type_shape": [{"float": shape} for shape in shapes], "parameter_size": size}
    events = [
        _event("a_kernel_time", 101, 5, op_name=operator, **stated),
        _event("model_run", 100, 20, "Session"),
    ]
    ((call,),) = runs_of(json.dumps(events))
    assert call.weight_bytes == weight_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "{}x",
        '{"a": 1}',
        "[1]",
        '[{"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": -1, "args": {}}]',
        '[{"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 1}]',
        '[{"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 1, "args": {}}]',
    ],
)
def test_a_damaged_profile_is_a_clear_error(text: str) -> None:
    with pytest.raises(BadOutputError) as caught:
        runs_of(text)
    assert caught.value.remedy


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["cat", "name", "ts", "dur", "args"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(st.lists(_JSON, max_size=5))
def test_no_text_ends_the_reader_in_another_way(content: object) -> None:
    with contextlib.suppress(BadOutputError):
        runs_of(json.dumps(content))


@given(st.binary(max_size=60))
def test_no_bytes_end_the_reader_of_names(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    path.write_bytes(data)
    assert all(isinstance(node.name, str) for node in read_graph(path))
