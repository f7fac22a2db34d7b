"""Multiply-accumulates of an ONNX graph, from the sizes of its tensors."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fleetrank.models.networks.cost import ELEMENTWISE_FLOPS

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]
_Sizes = Callable[["onnx.NodeProto", Mapping[str, Shape]], float]

_UNCOUNTED = frozenset({
    "Attention", "DFT", "DeformConv", "Einsum", "GRU", "If", "LSTM", "Loop", "RNN", "Scan",
    "SequenceMap", "STFT",
})  # fmt: skip
"""ONNX operators that multiply, or contain a graph that may, and that are not counted here."""


def count_onnx_macs(model: "onnx.ModelProto") -> int | None:
    """MACs of one inference at batch 1, with the same rules as `networks.cost`.

    Counts convolutions and matrix products, also quantised ones, plus half of
    `ELEMENTWISE_FLOPS` for each element of softmax and layer normalisation.

    Returns:
        `None` if the count would be a guess: the graph has an operator outside ONNX's domain, one
        that multiplies in another way, or a tensor of unknown size.
    """
    nodes = model.graph.node
    if any(node.domain not in ("", "ai.onnx") or node.op_type in _UNCOUNTED for node in nodes):
        return None
    shapes = _shapes(model)
    try:
        macs = sum(_MACS[node.op_type](node, shapes) for node in nodes if node.op_type in _MACS)
    except (KeyError, IndexError):
        return None
    return round(macs / _batch(model, shapes))


def _convolution(weights: int) -> _Sizes:
    def macs(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
        # Per output element: the weights of one filter, (channels / groups) x kernel.
        return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[weights]][1:])

    return macs


def _transposed(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
    return math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])


def _product(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
    return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _gemm(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
    is_transposed = any(it.name == "transA" and it.i for it in node.attribute)
    return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if is_transposed else 1]


def _elementwise(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
    return ELEMENTWISE_FLOPS / 2 * math.prod(shapes[node.output[0]])


_MACS: Mapping[str, _Sizes] = {
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed,
    "MatMul": _product,
    "MatMulInteger": _product,
    "QLinearMatMul": _product,
    "Gemm": _gemm,
    "Softmax": _elementwise,
    "LogSoftmax": _elementwise,
    "LayerNormalization": _elementwise,
}


def _shapes(model: "onnx.ModelProto") -> dict[str, Shape]:
    """The known sizes of tensors, with batch 1 where the batch is dynamic."""
    import onnx

    graph_only = onnx.ModelProto()
    graph_only.CopyFrom(model)
    for value in graph_only.graph.input:
        dims = value.type.tensor_type.shape.dim
        if dims and not dims[0].HasField("dim_value"):
            dims[0].dim_value = 1
    # Sizes that were inferred with a dynamic batch.
    del graph_only.graph.value_info[:]
    for value in graph_only.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(graph_only, data_prop=True).graph
    known = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
        if value.type.tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }
    return known | {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}


def _batch(model: "onnx.ModelProto", shapes: Mapping[str, Shape]) -> int:
    """The first axis of an image input; 1 without an image input."""
    images = (shapes[it.name] for it in model.graph.input if len(shapes.get(it.name, ())) == 4)
    return next((shape[0] for shape in images), 1) or 1
