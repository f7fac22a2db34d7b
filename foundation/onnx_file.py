"""The inputs and outputs that an ONNX file states, read without `onnx`, which a host may lack.

Source: onnx/onnx.proto (1.19) for field numbers and types; the encoding guide of protobuf.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from fleetrank.foundation.protobuf import Buffer, Span, fields_of, spans_of
from fleetrank.foundation.small_file import open_regular

ELEMENT_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    16: "bfloat16", 21: "uint4", 22: "int4",
}  # fmt: skip
"""Number in a file to the name in NumPy."""
_GRAPH = 7
NODES, INITIALIZERS, INPUTS, TENSOR_NAME = 1, 5, 11, 8
"""Fields of GraphProto and TensorProto."""
_VALUE_NAME, _VALUE_TYPE, _TYPE_TENSOR, _ELEMENT_TYPE, _SHAPE = 1, 2, 1, 1, 2
_DIM, _DIM_VALUE, _DIM_PARAM = 1, 1, 2


_EXTERNAL_DATA, _ENTRY_KEY, _ENTRY_VALUE = 13, 1, 2
"""Fields of TensorProto and StringStringEntryProto."""
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = frozenset({5, 10}), frozenset({6, 11})
"""Fields of AttributeProto: t and tensors, g and graphs."""


class NodeField(IntEnum):
    """The fields of NodeProto; ONNX 1.16 is the first with `METADATA`."""

    INPUTS = 1
    OUTPUTS = 2
    NAME = 3
    OPERATOR = 4
    ATTRIBUTES = 5
    METADATA = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInput:
    """One input as a file states it.

    Attributes:
        dtype: name in NumPy, or `bfloat16`; empty for a type that is not a number.
        sizes: a text is a free size: inputs with the same text have the same size; an empty text
            says nothing.
    """

    name: str
    dtype: str
    sizes: tuple[int | str, ...]


def onnx_inputs(data: bytes) -> list[StoredInput]:
    """The inputs of a model in its order; a free size has the file's name.

    Raises:
        ValueError: it is not a model.
    """
    stored, found = set[str](), list[StoredInput]()
    for number, span in spans_of(data, onnx_graph(data)):
        if number == INITIALIZERS:
            stored |= {
                text_of(data, inner) for at, inner in spans_of(data, span) if at == TENSOR_NAME
            }
        elif number == INPUTS:
            found.append(value_of(data, span))
    numbers = (replace(one, dtype=one.dtype.removeprefix("string")) for one in found)
    return [one for one in numbers if one.name not in stored]


def external_data_of(path: Path) -> tuple[str, ...]:
    """The files in which a model says that its weights lie, as it writes their names, sorted.

    Those of its tensors, of constants, and of graphs inside of nodes; empty for a file that is not
    a model.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                graph = onnx_graph(data)
                return tuple(sorted(set(_locations(data, graph))))
        except (ValueError, RecursionError):  # an empty file, too, cannot be mapped
            return ()


def _locations(data: Buffer, graph: Span) -> Iterator[str]:
    for number, span in spans_of(data, graph):
        if number == INITIALIZERS:
            yield from _locations_of_tensor(data, span)
        elif number == NODES:
            for field, attribute in spans_of(data, span):
                for at, part in spans_of(data, attribute) if field == NodeField.ATTRIBUTES else ():
                    if at in _ATTRIBUTE_TENSORS:
                        yield from _locations_of_tensor(data, part)
                    elif at in _ATTRIBUTE_GRAPHS:
                        yield from _locations(data, part)


def _locations_of_tensor(data: Buffer, tensor: Span) -> Iterator[str]:
    for number, entry in spans_of(data, tensor):
        if number == _EXTERNAL_DATA:
            texts = {at: text_of(data, part) for at, part in spans_of(data, entry)}
            if texts.get(_ENTRY_KEY) == "location":
                yield texts.get(_ENTRY_VALUE, "")


def onnx_graph(data: Buffer) -> Span:
    """Where the graph is; errors as `onnx_inputs`."""
    graphs = [span for number, span in spans_of(data, (0, len(data))) if number == _GRAPH]
    if not graphs:
        raise ValueError("it has no graph")
    return graphs[-1]


def text_of(data: Buffer, span: Span) -> str:
    """The text of a field; a byte that is not UTF-8 becomes a question mark of Unicode."""
    return data[slice(*span)].decode("utf-8", "replace")


def value_of(data: bytes, span: Span) -> StoredInput:
    """An input or output; an empty type if it is not a tensor."""
    name, dtype, sizes = "", "", list[int | str]()
    for number, inner in spans_of(data, span):
        if number == _VALUE_NAME:
            name = text_of(data, inner)
        elif number == _VALUE_TYPE:
            tensors = [part for field, part in spans_of(data, inner) if field == _TYPE_TENSOR]
            for field, value in (pair for part in tensors for pair in fields_of(data, part)):
                if field == _ELEMENT_TYPE and isinstance(value, int):
                    dtype = ELEMENT_TYPES.get(value, "")
                elif field == _SHAPE and not isinstance(value, int):
                    sizes = [_dim(data, dim) for at, dim in spans_of(data, value) if at == _DIM]
    return StoredInput(name=name, dtype=dtype, sizes=tuple(sizes))


def _dim(data: bytes, span: Span) -> int | str:
    size: int | str = ""
    for number, value in fields_of(data, span):
        if number == _DIM_VALUE and isinstance(value, int) and value > 0:
            size = value
        elif number == _DIM_PARAM and not isinstance(value, int):
            size = text_of(data, value)
    return size
