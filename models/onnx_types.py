"""Reads the number types of an ONNX file without `onnx`, which a planning host may lack.

Source: onnx/onnx.proto (1.19) for field numbers and types; the encoding guide of protobuf.
"""

import struct
from collections.abc import Sequence

from fleetrank.foundation.onnx_file import (
    ELEMENT_TYPES,
    INITIALIZERS,
    INPUTS,
    TENSOR_NAME,
    onnx_graph,
    text_of,
    value_of,
)
from fleetrank.foundation.protobuf import Span, fields_of, packed_numbers, spans_of
from fleetrank.models.onnx_weights import Node, Tensor, stored_weights
from fleetrank.models.stored_types import Scale, StoredTypes, elements_of, first_scale

_NODES, _OUTPUTS = 1, 12
_NODE_INPUTS, _NODE_OUTPUTS, _NODE_OPERATOR, _NODE_ATTRIBUTES = 1, 2, 4, 5
_ATTRIBUTE_NAME, _ATTRIBUTE_NUMBER, _ATTRIBUTE_TENSOR = 1, 3, 5
_ATTRIBUTE_GRAPHS = (6, 11)
_TENSOR_DIMS, _TENSOR_TYPE = 1, 2
_TENSOR_INTEGERS, _TENSOR_VALUES = 5, (4, 9)
_FORMS = {
    "float32": "<f", "int8": "<b", "uint8": "<B", "int16": "<h", "uint16": "<H", "int32": "<i",
}  # fmt: skip


def onnx_types(data: bytes) -> StoredTypes:
    """The types of the weights, and of inputs and outputs; the number of parameters.

    Raises:
        ValueError: it is not an ONNX model.
    """
    parts, graph = _Parts(data), onnx_graph(data)
    parts.read(graph)
    inputs, outputs = (
        [value_of(data, span) for number, span in spans_of(data, graph) if number == end]
        for end in (INPUTS, _OUTPUTS)
    )
    # Older files list their initializers among the inputs.
    inputs = [one for one in inputs if one.name not in parts.tensors]
    stored = stored_weights(parts.tensors, parts.nodes)
    return StoredTypes(
        weights=stored.types,
        inputs=tuple(one.dtype for one in inputs),
        outputs=tuple(one.dtype for one in outputs),
        scales=parts.scales_of([one.name for one in (*inputs, *outputs)]),
        strings=tuple(one.name for one in inputs if one.dtype == "string"),
        is_quantised=stored.is_quantised,
        parameters=stored.parameters,
    )


class _Parts:
    """Stored tensors by name, and the nodes, of a graph and of the graphs inside its nodes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.tensors: dict[str, Tensor] = {}
        self._spans: dict[str, Span] = {}
        self.nodes: list[Node] = []

    def read(self, graph: Span) -> None:
        """Adds the parts of one graph."""
        for number, span in spans_of(self._data, graph):
            if number == INITIALIZERS:
                name, tensor = _tensor(self._data, span)
                self.tensors[name], self._spans[name] = tensor, span
            elif number == _NODES:
                self._read_node(span)

    def _read_node(self, span: Span) -> None:
        parts = list(spans_of(self._data, span))
        operator, inputs, outputs = (
            [text_of(self._data, part) for number, part in parts if number == field]
            for field in (_NODE_OPERATOR, _NODE_INPUTS, _NODE_OUTPUTS)
        )
        numbers = dict[str, int]()
        for number, part in parts:
            if number == _NODE_ATTRIBUTES:
                numbers |= self._read_attribute(
                    part, outputs[:1] if operator == ["Constant"] else []
                )
        self.nodes.append(
            Node(
                operator=operator[-1] if operator else "",
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                numbers=numbers,
            )
        )

    def _read_attribute(self, span: Span, constants: Sequence[str]) -> dict[str, int]:
        """The attribute if it is an integer; a tensor in it is stored under these names."""
        name, numbers = "", dict[str, int]()
        for field, value in fields_of(self._data, span):
            if isinstance(value, int):
                if field == _ATTRIBUTE_NUMBER:
                    numbers[name] = value
            elif field == _ATTRIBUTE_NAME:
                name = text_of(self._data, value)
            elif field == _ATTRIBUTE_TENSOR:
                self.tensors |= dict.fromkeys(constants, _tensor(self._data, value)[1])
                self._spans |= dict.fromkeys(constants, value)
            elif field in _ATTRIBUTE_GRAPHS:
                self.read(value)
        return numbers

    def scales_of(self, names: Sequence[str]) -> tuple[Scale | None, ...]:
        """Of integers that the graph dequantises first, or quantises last."""
        found, wanted = dict[str, Scale | None](), {*names}
        for node in self.nodes:
            ends = {"DequantizeLinear": node.inputs[:1], "QuantizeLinear": node.outputs[:1]}
            for name in wanted.intersection(ends.get(node.operator, ())):
                scale, zero = (*node.inputs[1:3], "", "")[:2]
                found[name] = first_scale(
                    self._only_value(scale), self._only_value(zero) if zero else 0
                )
        return tuple(map(found.get, names))

    def _only_value(self, name: str) -> float | None:
        """Of a stored tensor; `None` if it has several values, or none in this file."""
        form, data = _FORMS.get(self.tensors.get(name, ("", 0))[0]), self._data
        if form is None or self.tensors[name][1] != 1:
            return None
        for number, span in spans_of(data, self._spans[name]):
            if number == _TENSOR_INTEGERS:
                for value in packed_numbers(data, span):
                    return value - 2**64 if value >> 63 else value
            if number in _TENSOR_VALUES and span[1] - span[0] == struct.calcsize(form):
                return float(struct.unpack_from(form, data, span[0])[0])
        return None


def _tensor(data: bytes, span: Span) -> tuple[str, Tensor]:
    """Name; type and number of elements."""
    name, kind, dims = "", "", list[int]()
    for number, value in fields_of(data, span):
        if number == _TENSOR_TYPE and isinstance(value, int):
            kind = ELEMENT_TYPES.get(value, "")
        elif number == _TENSOR_DIMS:
            # Packed or one by one: both are valid.
            dims += [value] if isinstance(value, int) else packed_numbers(data, value)
            elements_of(dims)  # at once: a hostile file has millions
        elif number == TENSOR_NAME and not isinstance(value, int):
            name = text_of(data, value)
    return name, (kind, elements_of(dims))
