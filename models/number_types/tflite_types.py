"""Reads the number types and the inputs of a TFLite FlatBuffer.

Source: tensorflow/lite/schema/schema.fbs: of `Model`, field 2 is the subgraphs and field 4 the
buffers; of `Buffer`, field 0 is data and field 1 the offset of appended data; of `SubGraph`, fields
0 to 2 are tensors, inputs and outputs; of `Tensor`, fields 0 to 3 are shape, type, buffer and name,
and field 7 is the shape with -1 for a free size. Field 7 of `Model` is the signatures; of
`SignatureDef`, field 1 is pairs of name and tensor for the outputs, and field 4 the subgraph.
"""

from collections.abc import Mapping

from fleetrank.foundation.inputs.model_input import plain_input_name
from fleetrank.models.number_types.flatbuffer import (
    byte_of,
    length_of,
    long_of,
    number_of,
    numbers_of,
    root_of,
    tables_of,
    text_of,
)
from fleetrank.models.number_types.stored_types import (
    MOST_DIMENSIONS,
    StoredInput,
    StoredTypes,
    elements_of,
)

_MODEL_SUBGRAPHS, _MODEL_BUFFERS, _MODEL_SIGNATURES = 2, 4, 7
_SIGNATURE_OUTPUTS, _SIGNATURE_GRAPH = 1, 4
_PAIR_NAME, _PAIR_TENSOR = 0, 1
_BUFFER_DATA, _BUFFER_OFFSET = 0, 1
_GRAPH_TENSORS, _GRAPH_INPUTS, _GRAPH_OUTPUTS = 0, 1, 2
_TENSOR_SHAPE, _TENSOR_TYPE, _TENSOR_BUFFER, _TENSOR_NAME = 0, 1, 2, 3
_TENSOR_FREE_SHAPE = 7
_TYPES = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 5: "string", 6: "bool",
    7: "int16", 9: "int8", 10: "float64", 12: "uint64", 15: "uint32", 16: "uint16", 17: "int4",
    18: "bfloat16",
}  # fmt: skip
_MOST_TENSORS = 1_000_000
"""Of all subgraphs together: graphs of a hostile file may overlap."""


def tflite_types(data: bytes) -> StoredTypes:
    """The types of tensors with stored values, and of the first subgraph's inputs and outputs.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: it is not a model.
    """
    model = root_of(data)
    has_values = [_has_values(data, buffer) for buffer in tables_of(data, model, _MODEL_BUFFERS)]
    graphs = list(tables_of(data, model, _MODEL_SUBGRAPHS))
    if not graphs:
        raise ValueError("no subgraph")
    if sum(length_of(data, graph, _GRAPH_TENSORS) for graph in graphs) > _MOST_TENSORS:
        raise ValueError("too many tensors")
    weights = []
    for graph in graphs:
        for tensor in tables_of(data, graph, _GRAPH_TENSORS):
            buffer = number_of(data, tensor, _TENSOR_BUFFER)
            if buffer < len(has_values) and has_values[buffer]:
                shape = numbers_of(data, tensor, _TENSOR_SHAPE, MOST_DIMENSIONS)
                weights.append((_type(data, tensor), elements_of(shape)))
    tensors = list(tables_of(data, graphs[0], _GRAPH_TENSORS))
    inputs = [tensors[i] for i in numbers_of(data, graphs[0], _GRAPH_INPUTS)]
    outputs = [tensors[i] for i in numbers_of(data, graphs[0], _GRAPH_OUTPUTS)]
    return StoredTypes(
        weights=tuple(weights),
        border=tuple(_type(data, tensor) for tensor in (*inputs, *outputs)),
        strings=tuple(
            text_of(data, tensor, _TENSOR_NAME)
            for tensor in inputs
            if _type(data, tensor) == "string"
        ),
    )


def tflite_inputs(data: bytes) -> list[StoredInput]:
    """The inputs of the first subgraph.

    Raises:
        struct.error: a table is beyond the end of the file.
        IndexError: an input is not a tensor of the file.
        ValueError: it is not a model.
    """
    return _border(data, _GRAPH_INPUTS, {})


def tflite_outputs(data: bytes) -> list[StoredInput]:
    """The outputs of the first subgraph; a signature of it gives their names.

    Raises: as `tflite_inputs`.
    """
    names: dict[int, str] = {}
    for signature in tables_of(data, root_of(data), _MODEL_SIGNATURES):
        if number_of(data, signature, _SIGNATURE_GRAPH) == 0:
            for pair in tables_of(data, signature, _SIGNATURE_OUTPUTS):
                names[number_of(data, pair, _PAIR_TENSOR)] = text_of(data, pair, _PAIR_NAME)
    return _border(data, _GRAPH_OUTPUTS, names)


def _border(data: bytes, field: int, names: Mapping[int, str]) -> list[StoredInput]:
    graph = next(tables_of(data, root_of(data), _MODEL_SUBGRAPHS), None)
    if graph is None:
        raise ValueError("no subgraph")
    tensors = list(tables_of(data, graph, _GRAPH_TENSORS))
    return [
        StoredInput(
            name=names.get(at) or _plain_name(text_of(data, tensors[at], _TENSOR_NAME)),
            dtype=_type(data, tensors[at]).removeprefix("string"),
            sizes=tuple(size if size > 0 else "" for size in _sizes(data, tensors[at])),
        )
        for at in numbers_of(data, graph, field)
    ]


def _plain_name(name: str) -> str:
    return plain_input_name(name) or name


def _sizes(data: bytes, tensor: int) -> tuple[int, ...]:
    free = numbers_of(data, tensor, _TENSOR_FREE_SHAPE, MOST_DIMENSIONS)
    return free or numbers_of(data, tensor, _TENSOR_SHAPE, MOST_DIMENSIONS)


def _type(data: bytes, tensor: int) -> str:
    return _TYPES.get(byte_of(data, tensor, _TENSOR_TYPE), "")


def _has_values(data: bytes, buffer: int) -> bool:
    # Offsets 0 and 1 mean that nothing is appended.
    is_inside = length_of(data, buffer, _BUFFER_DATA) > 0
    return is_inside or long_of(data, buffer, _BUFFER_OFFSET) > 1
