"""Reads the number types and the inputs of a TFLite FlatBuffer.

Source: tensorflow/lite/schema/schema.fbs: of `Model`, field 2 is the subgraphs and field 4 the
buffers; of `Buffer`, field 0 is data, fields 1 and 2 offset and size of appended data; of
`SubGraph`, fields 0 to 2 are tensors, inputs and outputs; of `Tensor`, fields 0 to 3 are shape,
type, buffer and name, and field 7 is the shape with -1 for a free size. Field 7 of `Model` is the
signatures; of `SignatureDef`, field 1 is pairs of name and tensor for the outputs, and field 4 the
subgraph. Field 4 of `Tensor` is its quantization: field 2 is the scales, field 3 the zero points,
and field 4 is above 0 if scales are elsewhere.
"""

from collections.abc import Iterator, Mapping

from fleetrank.foundation.flatbuffer import FlatBufferTable
from fleetrank.foundation.inputs import plain_input_name
from fleetrank.foundation.onnx_file import StoredInput
from fleetrank.models.stored_types import (
    FLOATS,
    MOST_DIMENSIONS,
    OF_QUANTISED,
    Scale,
    StoredTypes,
    elements_of,
    first_scale,
)

_MODEL_SUBGRAPHS, _MODEL_BUFFERS, _MODEL_SIGNATURES = 2, 4, 7
_SIGNATURE_OUTPUTS, _SIGNATURE_GRAPH = 1, 4
_PAIR_NAME, _PAIR_TENSOR = 0, 1
_BUFFER_DATA, _BUFFER_OFFSET, _BUFFER_SIZE = 0, 1, 2
_GRAPH_TENSORS, _GRAPH_INPUTS, _GRAPH_OUTPUTS = 0, 1, 2
_TENSOR_SHAPE, _TFLITE_TENSOR_TYPE, _TENSOR_BUFFER, _TFLITE_TENSOR_NAME = 0, 1, 2, 3
_TENSOR_QUANTIZATION, _TENSOR_FREE_SHAPE = 4, 7
_SCALES, _ZEROS, _SCALES_ELSEWHERE = 2, 3, 4
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
    model = FlatBufferTable.root(data)
    # Offsets 0 and 1 mean that nothing is appended.
    has_values = [
        buffer.length(_BUFFER_DATA) > 0 or buffer.number(_BUFFER_OFFSET, "<Q") > 1
        for buffer in model.tables(_MODEL_BUFFERS)
    ]
    graphs = list(model.tables(_MODEL_SUBGRAPHS))
    if not graphs:
        raise ValueError("no subgraph")
    if sum(graph.length(_GRAPH_TENSORS) for graph in graphs) > _MOST_TENSORS:
        raise ValueError("too many tensors")
    weights = []
    for graph in graphs:
        for tensor in graph.tables(_GRAPH_TENSORS):
            buffer = tensor.number(_TENSOR_BUFFER)
            if buffer < len(has_values) and has_values[buffer]:
                shape = tensor.numbers(_TENSOR_SHAPE, MOST_DIMENSIONS)
                weights.append((_type(tensor), elements_of(shape)))
    tensors = list(graphs[0].tables(_GRAPH_TENSORS))
    inputs = [tensors[i] for i in graphs[0].numbers(_GRAPH_INPUTS)]
    outputs = [tensors[i] for i in graphs[0].numbers(_GRAPH_OUTPUTS)]
    return StoredTypes(
        weights=tuple(weights),
        inputs=tuple(map(_type, inputs)),
        outputs=tuple(map(_type, outputs)),
        scales=tuple(map(_tensor_scale, (*inputs, *outputs))),
        strings=tuple(
            tensor.text(_TFLITE_TENSOR_NAME) for tensor in inputs if _type(tensor) == "string"
        ),
    )


def _tensor_scale(tensor: FlatBufferTable) -> Scale | None:
    """Of a tensor of integers with one scale."""
    found = tensor.table(_TENSOR_QUANTIZATION)
    if found is None or found.length(_SCALES) != 1 or _type(tensor) in FLOATS:
        return None
    # Zero points have eight bytes: read as numbers of four, the first is the lower half.
    return first_scale(found.floats(_SCALES)[0], next(iter(found.numbers(_ZEROS)), 0))


def tflite_scales(data: bytes) -> Iterator[tuple[str, tuple[float, ...]]]:
    """The name and the scales of each tensor whose integers are quantised.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: tables overlap.
    """
    n_read = 0
    for graph in FlatBufferTable.root(data).tables(_MODEL_SUBGRAPHS):
        for tensor in graph.tables(_GRAPH_TENSORS):
            found = tensor.table(_TENSOR_QUANTIZATION)
            n_read += 1 if found is None else 1 + found.length(_SCALES)
            if n_read > len(data):
                raise ValueError("tables overlap")
            if found is None or _type(tensor) not in OF_QUANTISED:
                continue
            scales = found.floats(_SCALES)
            if scales or (found.length(_ZEROS) and not found.number(_SCALES_ELSEWHERE, "<B")):
                yield tensor.text(_TFLITE_TENSOR_NAME), scales


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
    for signature in FlatBufferTable.root(data).tables(_MODEL_SIGNATURES):
        if signature.number(_SIGNATURE_GRAPH) == 0:
            for pair in signature.tables(_SIGNATURE_OUTPUTS):
                names[pair.number(_PAIR_TENSOR)] = pair.text(_PAIR_NAME)
    return _border(data, _GRAPH_OUTPUTS, names)


def _border(data: bytes, field: int, names: Mapping[int, str]) -> list[StoredInput]:
    graph = next(FlatBufferTable.root(data).tables(_MODEL_SUBGRAPHS), None)
    if graph is None:
        raise ValueError("no subgraph")
    tensors = list(graph.tables(_GRAPH_TENSORS))
    found = []
    for at in graph.numbers(field):
        tensor = tensors[at]
        name = tensor.text(_TFLITE_TENSOR_NAME)
        free = tensor.numbers(_TENSOR_FREE_SHAPE, MOST_DIMENSIONS)
        sizes = free or tensor.numbers(_TENSOR_SHAPE, MOST_DIMENSIONS)
        found.append(
            StoredInput(
                name=names.get(at) or plain_input_name(name) or name,
                dtype=_type(tensor).removeprefix("string"),
                sizes=tuple(size if size > 0 else "" for size in sizes),
            )
        )
    return found


def _type(tensor: FlatBufferTable) -> str:
    return _TYPES.get(tensor.number(_TFLITE_TENSOR_TYPE, "<B"), "")


def check_buffers(data: bytes) -> None:
    """Checks that the file contains all of its weights, without reading the rest.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: a buffer's data is beyond the end of the file.
    """
    model = FlatBufferTable.root(data)
    if model.place(_MODEL_BUFFERS) is None:
        raise ValueError("no buffers")
    for buffer in model.tables(_MODEL_BUFFERS):
        appended = buffer.number(_BUFFER_OFFSET, "<Q") + buffer.number(_BUFFER_SIZE, "<Q")
        if max(buffer.end(_BUFFER_DATA), appended) > len(data):
            raise ValueError("a buffer ends beyond the end of the file")
