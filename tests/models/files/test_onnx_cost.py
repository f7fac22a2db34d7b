"""MACs of ONNX graphs, by hand; whole networks are compared with PyTorch's count in test_export."""

import math

import onnx
import pytest
from onnx import TensorProto, helper

from fleetrank.models.files import count_onnx_macs

Size = int | str | None


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[Size]], weights: dict[str, list[int]]
) -> onnx.ModelProto:
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", kind, None)],
        [
            helper.make_tensor(name, kind, dims, [0.0] * math.prod(dims))
            for name, dims in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def node(kind: str, inputs: str = "x w", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), ["y"], **attributes)


@pytest.mark.parametrize(
    ("it", "shape", "weights", "macs"),
    [
        (node("Conv", pads=[1, 1, 1, 1]), [1, 3, 8, 8], [4, 3, 3, 3], 4 * 64 * 27),
        (node("Conv", group=4, strides=[2, 2]), [1, 4, 8, 8], [4, 1, 2, 2], 4 * 16 * 4),
        (node("ConvTranspose", strides=[2, 2]), [1, 3, 4, 4], [3, 5, 2, 2], 48 * 20),
        (node("MatMul"), [2, 7, 5], [5, 6], 2 * 7 * 6 * 5),
        (node("Gemm"), [1, 5], [5, 6], 30),
        (node("Gemm", transA=1, transB=1), [5, 2], [6, 5], 2 * 6 * 5),
        (node("Softmax", "x"), [2, 10], [1], 50),
        (node("LayerNormalization"), [2, 10], [10], 50),
        (node("Relu", "x"), [2, 10], [1], 0),
    ],
)
def test_products_are_counted_and_nothing_else(
    it: onnx.NodeProto, shape: list[Size], weights: list[int], macs: int
) -> None:
    assert count_onnx_macs(model_of([it], {"x": shape}, {"w": weights})) == macs


@pytest.mark.parametrize("batch", [1, 8, "N", None])
def test_the_count_is_of_a_batch_of_one_whatever_the_file_says(batch: Size) -> None:
    model = model_of([node("Conv")], {"x": [batch, 3, 8, 8]}, {"w": [4, 3, 3, 3]})
    assert count_onnx_macs(model) == 4 * 36 * 27


def test_sizes_are_followed_through_the_graph() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("Gemm", ["c", "v"], ["y"]),
    ]
    weights = {"w": [4, 3, 3, 3], "v": [4, 10]}
    assert count_onnx_macs(model_of(nodes, {"x": ["N", 3, 8, 8]}, weights)) == 4 * 36 * 27 + 40


@pytest.mark.parametrize(
    ("it", "shape"),
    [
        (node("Conv"), [1, 3, "height", "width"]),
        (node("FusedConv", domain="com.microsoft"), [1, 3, 8, 8]),
        (node("Einsum", equation="ij,jk->ik"), [3, 8]),
        (node("Conv", "x missing"), [1, 3, 8, 8]),
    ],
)
def test_what_would_be_a_guess_is_not_counted(it: onnx.NodeProto, shape: list[Size]) -> None:
    assert count_onnx_macs(model_of([it], {"x": shape}, {"w": [4, 3, 3, 3]})) is None


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("directions", [1, 2])
def test_each_step_of_a_recurrent_layer_uses_both_matrices(
    kind: str, gates: int, directions: int
) -> None:
    time, inputs, hidden = 7, 4, 5
    weights = {"w": [directions, gates * hidden, inputs], "r": [directions, gates * hidden, hidden]}
    for batch in (1, 3):
        model = model_of(
            [node(kind, "x w r", hidden_size=hidden)], {"x": [time, batch, inputs]}, weights
        )
        one_step = gates * hidden * (inputs + hidden)
        assert count_onnx_macs(model, batch) == time * directions * one_step
