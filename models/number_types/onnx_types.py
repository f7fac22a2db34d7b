"""Reads the number types of an ONNX file without `onnx`, which a planning host may lack.

Source: onnx/onnx.proto (1.19) for field numbers and types; the encoding guide of protobuf.
"""

from fleetrank.foundation.binary.protobuf import Span, fields_of, packed_numbers, spans_of
from fleetrank.models.number_types.stored_types import StoredTypes, elements_of

ELEMENT_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    16: "bfloat16", 21: "uint4", 22: "int4",
}  # fmt: skip
"""Number in a file to the name in NumPy."""
_MODEL_GRAPH = 7
_NODES, _INITIALIZERS, _INPUTS, _OUTPUTS = 1, 5, 11, 12
_NODE_OPERATOR, _NODE_ATTRIBUTES, _ATTRIBUTE_TENSOR = 4, 5, 5
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME = 1, 2, 8
_VALUE_NAME, _VALUE_TYPE, _TYPE_TENSOR, _ELEMENT_TYPE = 1, 2, 1, 1


def onnx_types(data: bytes) -> StoredTypes:
    """The types of initializers, of tensors in attributes, and of inputs and outputs.

    Raises:
        ValueError: it is not an ONNX model.
    """
    graphs = [span for number, span in spans_of(data, (0, len(data))) if number == _MODEL_GRAPH]
    if not graphs:
        raise ValueError("no graph")
    weights: list[tuple[str, int]] = []
    stored: set[bytes] = set()
    inputs: list[tuple[bytes, str]] = []
    outputs: list[tuple[bytes, str]] = []
    quantises = False
    for number, span in spans_of(data, graphs[-1]):
        if number == _INITIALIZERS:
            name, kind, elements = _tensor(data, span)
            stored.add(name)
            weights.append((kind, elements))
        elif number == _NODES:
            operator, tensors = _node(data, span)
            weights += tensors
            quantises |= operator == b"QuantizeLinear"
        elif number in (_INPUTS, _OUTPUTS):
            (inputs if number == _INPUTS else outputs).append(_value_info(data, span))
    # Older files list their initializers among the inputs.
    inputs = [(name, kind) for name, kind in inputs if name not in stored]
    return StoredTypes(
        weights=tuple(weights),
        border=tuple(kind for _name, kind in (*inputs, *outputs)),
        strings=tuple(name.decode("utf-8", "replace") for name, kind in inputs if kind == "string"),
        hides_weights=quantises,
    )


def _node(data: bytes, span: Span) -> tuple[bytes, list[tuple[str, int]]]:
    """The operator, and the types of tensors in its attributes, as a `Constant` has one."""
    operator, tensors = b"", []
    for number, (start, end) in spans_of(data, span):
        if number == _NODE_OPERATOR:
            operator = data[start:end]
        elif number == _NODE_ATTRIBUTES:
            for field, inner in spans_of(data, (start, end)):
                if field == _ATTRIBUTE_TENSOR:
                    tensors.append(_tensor(data, inner)[1:])
    return operator, tensors


def _tensor(data: bytes, span: Span) -> tuple[bytes, str, int]:
    """Name, type and number of elements."""
    name, kind, dims = b"", "", list[int]()
    for number, value in fields_of(data, span):
        if number == _TENSOR_TYPE and isinstance(value, int):
            kind = ELEMENT_TYPES.get(value, "")
        elif number == _TENSOR_DIMS:
            # Packed or one by one: both are valid.
            dims += [value] if isinstance(value, int) else packed_numbers(data, value)
            elements_of(dims)  # at once: a hostile file has millions
        elif number == _TENSOR_NAME and not isinstance(value, int):
            name = data[slice(*value)]
    return name, kind, elements_of(dims)


def _value_info(data: bytes, span: Span) -> tuple[bytes, str]:
    """Name and type of an input or output; an empty type if it is not a tensor."""
    name, kind = b"", ""
    for number, inner in spans_of(data, span):
        if number == _VALUE_NAME:
            name = data[slice(*inner)]
        elif number == _VALUE_TYPE:
            for field, tensor in spans_of(data, inner):
                if field == _TYPE_TENSOR:
                    kind = _element_type(data, tensor)
    return name, kind


def _element_type(data: bytes, span: Span) -> str:
    codes = [value for number, value in fields_of(data, span) if number == _ELEMENT_TYPE]
    return ELEMENT_TYPES.get(codes[-1], "") if codes and isinstance(codes[-1], int) else ""
