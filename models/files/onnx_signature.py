"""Reads the inputs that an ONNX file states, without `onnx`, which a planning host may lack.

Source: onnx/onnx.proto (1.19) for field numbers.
"""

from fleetrank.foundation.binary.protobuf import Span, fields_of, spans_of
from fleetrank.models.number_types.onnx_types import ELEMENT_TYPES
from fleetrank.models.number_types.stored_types import StoredInput

_MODEL_GRAPH = 7
_INITIALIZERS, _INPUTS = 5, 11
_TENSOR_NAME = 8
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_TENSOR, _ELEMENT_TYPE, _SHAPE = 1, 1, 2
_DIM, _DIM_VALUE, _DIM_PARAM = 1, 1, 2


def onnx_inputs(data: bytes) -> list[StoredInput]:
    """The inputs of a model in its order; a free size has the file's name.

    Raises:
        ValueError: it is not a model.
    """
    graphs = [span for number, span in spans_of(data, (0, len(data))) if number == _MODEL_GRAPH]
    if not graphs:
        raise ValueError("it has no graph")
    stored, found = set[str](), list[StoredInput]()
    for number, span in spans_of(data, graphs[-1]):
        if number == _INITIALIZERS:
            stored |= {_text(data, inner) for field, inner in spans_of(data, span)
                       if field == _TENSOR_NAME}  # fmt: skip
        elif number == _INPUTS:
            found.append(_input(data, span))
    # Older files list their initializers among the inputs.
    return [one for one in found if one.name not in stored]


def _input(data: bytes, span: Span) -> StoredInput:
    name, dtype, sizes = "", "", list[int | str]()
    for number, inner in spans_of(data, span):
        if number == _VALUE_NAME:
            name = _text(data, inner)
        elif number == _VALUE_TYPE:
            tensors = [part for field, part in spans_of(data, inner) if field == _TYPE_TENSOR]
            for field, value in (pair for part in tensors for pair in fields_of(data, part)):
                if field == _ELEMENT_TYPE and isinstance(value, int):
                    dtype = ELEMENT_TYPES.get(value, "")
                elif field == _SHAPE and not isinstance(value, int):
                    sizes = [_size(data, dim) for at, dim in spans_of(data, value) if at == _DIM]
    return StoredInput(name=name, dtype=dtype.removeprefix("string"), sizes=tuple(sizes))


def _size(data: bytes, span: Span) -> int | str:
    size: int | str = ""
    for number, value in fields_of(data, span):
        if number == _DIM_VALUE and isinstance(value, int) and value > 0:
            size = value
        elif number == _DIM_PARAM and not isinstance(value, int):
            size = _text(data, value)
    return size


def _text(data: bytes, span: Span) -> str:
    return data[slice(*span)].decode("utf-8", "replace")
