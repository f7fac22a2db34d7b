"""Which stored tensors of an ONNX graph are weights, and for how many numbers each of them stands.

An integer is a weight, a zero point or a shape by the input of the operator that reads it.

Source: ONNX's Operators.md (opset 21), and ContribOperators.md of ONNX Runtime 1.31 for the domain
`com.microsoft`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

Tensor = tuple[str, int]
"""Number type, and number of elements."""

_QUANTISED = re.compile(r"Q[A-Z]\w*|\w*(Quantize|Integer|NBits|Bnb4|FpQ4)\w*")
"""Names of the operators that quantise, dequantise or take quantised weights."""
_VALUES_AT: Mapping[str, tuple[int, ...]] = {
    "ConvInteger": (0, 1),
    "DequantizeLinear": (0,),
    "DynamicQuantizeLSTM": (1, 2, 3, 7),
    "DynamicQuantizeLinear": (0,),
    "DynamicQuantizeMatMul": (0, 1, 4),
    "GatherBlockQuantized": (0,),
    "MatMulInteger": (0, 1),
    "MatMulIntegerToFloat": (0, 1, 6),
    "MatMulNBits": (1, 5),
    "QAttention": (1, 2),
    "QGemm": (0, 3, 6),
    "QLinearAdd": (0, 3),
    "QLinearConcat": (),
    "QLinearConv": (0, 3, 8),
    "QLinearMatMul": (0, 3),
    "QLinearMul": (0, 3),
    "QLinearWhere": (1, 4),
    "QuantizeLinear": (0,),
}
"""Inputs of quantised operators that are values; all others are scales, zero points and indices."""
_PACKED_AT = {"GatherBlockQuantized": 0, "MatMulNBits": 1}
"""Of these inputs, one byte contains several weights."""
_USUAL_BITS = 4
_INTEGER_SUMS = {"ConvInteger", "MatMulInteger"}
_TRAINED = frozenset(
    {"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int4", "uint4"}
)
"""Types of weights of an operator that is not quantised: wider integers are indices and shapes."""
_TYPE_OF_BITS = {4: "int4", 8: "int8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operator of a graph, with its attributes that are integers."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: Mapping[str, int]


class _Role(IntEnum):
    """What a stored tensor is for the operator that reads it; of several the highest counts."""

    SCALE = 0
    """A scale or a zero point."""
    INDEX = 1
    """An index, a shape or another setting."""
    WEIGHT = 2
    UNKNOWN = 3


_Seen = tuple[_Role, str, int]
"""Role, number type (empty if it is not known) and number of elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """The stored tensors of a graph without scales and zero points.

    Attributes:
        types: the type is empty where it is not known.
        parameters: numbers of all weights; `None` without any, or if a role is not known.
        is_quantised: an operator quantises, dequantises or takes quantised weights.
    """

    types: tuple[Tensor, ...]
    parameters: int | None
    is_quantised: bool


def stored_weights(tensors: Mapping[str, Tensor], nodes: Sequence[Node]) -> StoredWeights:
    """The weights of a graph.

    Args:
        tensors: initializers, and outputs of `Constant`, by name.
        nodes: in the order of the graph, also those of graphs inside nodes.
    """
    scales = _scales_of_sums(nodes)
    seen = dict[str, _Seen]()
    for node in nodes:
        for place, name in enumerate(node.inputs):
            if name in tensors and name not in scales:
                found = _seen(node, place, tensors[name])
                seen[name] = max(found, seen.get(name, found))
    every = [
        seen.get(name) or _seen_alone(tensor)
        for name, tensor in tensors.items()
        if name not in scales
    ]
    parameters = sum(elements for role, _kind, elements in every if role is _Role.WEIGHT)
    is_known = all(role is not _Role.UNKNOWN for role, _kind, _elements in every)
    return StoredWeights(
        types=tuple((kind, elements) for role, kind, elements in every if role > _Role.SCALE),
        parameters=(parameters or None) if is_known else None,
        is_quantised=any(_QUANTISED.fullmatch(node.operator) for node in nodes),
    )


def _seen(node: Node, place: int, tensor: Tensor) -> _Seen:
    """What the tensor is at an input of an operator."""
    operator = node.operator
    places = _VALUES_AT.get(operator, (0,) if operator.startswith("QLinear") else None)
    if places is None:
        return _unknown(tensor) if _QUANTISED.fullmatch(operator) else _seen_alone(tensor)
    if place not in places:
        return _Role.SCALE, *tensor
    if place == _PACKED_AT.get(operator):
        return _unpacked(node.numbers, tensor)
    return _Role.WEIGHT, *tensor


def _seen_alone(tensor: Tensor) -> _Seen:
    """What the tensor is for an operator that is not quantised, or for none."""
    if not tensor[0]:
        return _unknown(tensor)
    return _Role.WEIGHT if tensor[0] in _TRAINED else _Role.INDEX, *tensor


def _unpacked(numbers: Mapping[str, int], tensor: Tensor) -> _Seen:
    """Bytes that contain several weights; K x N of them if they are the matrix of a product."""
    kind, elements = tensor
    is_matrix, bits = "K" in numbers, numbers.get("bits", _USUAL_BITS)
    if kind != "uint8" and not is_matrix:
        return _Role.WEIGHT, kind, elements
    if not 0 < bits <= 8:
        return _unknown(tensor)
    room = 8 * elements // bits
    weights = numbers["K"] * numbers.get("N", 0) if is_matrix else room
    if not 0 < weights <= room:
        return _unknown(tensor)
    return _Role.WEIGHT, _TYPE_OF_BITS.get(bits, ""), weights


def _unknown(tensor: Tensor) -> _Seen:
    return _Role.UNKNOWN, "", tensor[1]


def _scales_of_sums(nodes: Sequence[Node]) -> set[str]:
    """Factors of integer sums: dynamic quantisation multiplies the sums with two scales."""
    sums, scales = set[str](), set[str]()
    factors = dict[str, tuple[str, ...]]()
    for node in nodes:
        has_sum = not sums.isdisjoint(node.inputs)
        if node.operator in _INTEGER_SUMS or (node.operator == "Cast" and has_sum):
            sums.update(node.outputs)
        elif node.operator == "Mul" and has_sum:
            scales.update(*(factors.get(name, (name,)) for name in node.inputs))
        elif node.operator == "Mul":
            factors |= dict.fromkeys(node.outputs, node.inputs)
    return scales
