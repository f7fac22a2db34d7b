"""Reads the number types of a model file of any format; runs no code of the file."""

import json
import logging
import math
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.binary import Span, Table, fields_of, packed_numbers, spans_of
from fleetrank.foundation.formats import described
from fleetrank.foundation.inputs import plain_input_name
from fleetrank.foundation.onnx_file import (
    ELEMENT_TYPES,
    INITIALIZERS,
    INPUTS,
    TENSOR_NAME,
    StoredInput,
    onnx_graph,
    onnx_inputs,
    text_of,
    value_of,
)
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Format, Precision
from fleetrank.models.onnx_weights import Node, Tensor, stored_weights

# The number types that a model file contains, and the precision that follows from them.

_PRECISION_OF: Mapping[str, Precision | None] = {
    "": None,
    "float64": Precision.FP64,
    "float32": Precision.FP32,
    "float16": Precision.FP16,
    "bfloat16": Precision.BF16,
    "int8": Precision.INT8,
    "uint8": Precision.INT8,
    "int4": Precision.INT4,
    "uint4": Precision.INT4,
}
"""Wider integers are indices, shapes and biases, so they say nothing about the arithmetic."""
_OF_QUANTISED = frozenset({"", "int8", "uint8", "int4", "uint4"})
"""Types of quantised weights; the empty one is a type that is not known."""
_FLOATS = dict.fromkeys(("float64", "float32", "float16", "bfloat16"), "float")
_INDICES = frozenset({"int32", "int64", "uint32", "uint64", "bool"})
Scale = tuple[float, int]
"""Scale and zero point: an integer q stands for scale x (q - zero point)."""
MOST_DIMENSIONS = 64
"""Eight times what runtimes support; the product of a hostile file's million sizes takes hours."""
_MOST_SCALES = 1000
"""In a row: four times the inputs and outputs of a decoder of 60 layers with its cache."""


def elements_of(sizes: Sequence[int]) -> int:
    """The number of elements of a tensor with these sizes.

    Raises:
        ValueError: it has too many dimensions.
    """
    if len(sizes) > MOST_DIMENSIONS:
        raise ValueError(f"a tensor has {len(sizes):,} dimensions")
    return math.prod(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTypes:
    """What a file says about its numbers; type names are those of NumPy, plus `bfloat16`.

    A type that is not known is an empty text.

    Attributes:
        weights: (type, number of elements) of each stored tensor.
        inputs, outputs: types of the border.
        scales: of the inputs and then the outputs, `None` where the file states none; empty for
            formats where they are not read.
        strings: names of inputs that take text.
        hides_weights: a part of the file cannot be read, such as the payload of a delegate.
        is_quantised: operators of the file quantise, dequantise or take quantised weights.
        parameters: number of trained numbers; `None` if they are not known.
    """

    weights: tuple[tuple[str, int], ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    scales: tuple[Scale | None, ...] = ()
    strings: tuple[str, ...] = ()
    hides_weights: bool = False
    is_quantised: bool = False
    parameters: int | None = None

    @property
    def precision(self) -> Precision | None:
        """The type of most weight elements, or of the border where no weights are stored.

        In a quantised file only quantised weights count: a table of tokens often stays in fp32 and
        has more elements. `None` if the file cannot say.
        """
        if self.hides_weights:
            return None
        weights = [one for one in self.weights if one[0] in _PRECISION_OF and one[1] > 0]
        if self.is_quantised:
            return _most(one for one in weights if one[0] in _OF_QUANTISED)
        return _most(weights or ((name, 1) for name in (*self.inputs, *self.outputs) if name))

    @property
    def border(self) -> str | None:
        """`float`, or `int8 in, float out` where conversions of integers are not all in the time.

        Indices and masks do not count. `None` if a type is not known.
        """
        ends = {"in": self.inputs, "out": self.outputs}
        if not all(map(all, ends.values())) or not any(ends.values()):
            return None
        sides = {
            end: sorted({_FLOATS.get(name, name) for name in names} - _INDICES)
            for end, names in ends.items()
        }
        if not any({*names} - {"float"} for names in sides.values()):
            return "float"
        return ", ".join(f"{'/'.join(names)} {end}" for end, names in sides.items() if names)

    @property
    def border_scales(self) -> str | None:
        """JSON object of lists `in` and `out` of `scales`; `None` if no scale is stated."""
        if not any(self.scales) or len(self.scales) > _MOST_SCALES:
            return None
        n_inputs = len(self.inputs)
        return json.dumps({"in": self.scales[:n_inputs], "out": self.scales[n_inputs:]})


def _most(types: Iterable[tuple[str, int]]) -> Precision | None:
    """The precision with the most elements; of two equally common ones the first."""
    counts: Counter[Precision | None] = Counter()
    for name, elements in types:
        if name in _PRECISION_OF:
            counts[_PRECISION_OF[name]] += elements
    found = counts.most_common(1)
    return found[0][0] if found else None


# Reads the number types of an ONNX file without `onnx`, which a planning host may lack.
#
# Source: onnx/onnx.proto (1.19) for field numbers and types; the encoding guide of protobuf.

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
                found[name] = _scale(self._only_value(scale), self._only_value(zero) if zero else 0)
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


def _scale(scale: float | None, zero: float | None) -> Scale | None:
    """`None` if one is missing, or is not a number."""
    if scale is None or zero is None or not math.isfinite(scale + zero):
        return None
    return float(f"{scale:.9g}"), int(zero)  # nine digits: it is stored in 32 bits


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


# Reads the number types and inputs of a `.pt2` archive from its tables, without PyTorch.
#
# Source: torch 2.13, _export/serde/schema.py: `ScalarType`, and the layout of an archive; older
# archives have other members, which are not read.

_PT2_TYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 12: "bool", 13: "bfloat16", 28: "uint16", 34: "uint32", 35: "uint64",
}  # fmt: skip
_WEIGHTS = "data/weights/model_weights_config.json"
_PROGRAM = "models/model.json"
_ATOM = re.compile(r"Symbol\('(\w{1,40})'[\w=, ]{0,80}\)|Integer\((-?\d{1,9})\)", re.ASCII)
_PRODUCT = re.compile(r"Mul\(([\w, -]{1,200})\)", re.ASCII)
_SUM = re.compile(r"Add\(([\w*, -]{1,400})\)", re.ASCII)
_PLAIN_SUM = re.compile(r"[\w*+ -]{1,400}", re.ASCII)
_WORD = re.compile(r"\b[A-Za-z_]\w*", re.ASCII)
QUANTISED = re.compile(r"(torch\.ops\.)?(quantized|quantized_decomposed|torchao)(\.|::)")
"""Start of the name of an operator that quantises, dequantises or takes quantised weights."""
PACKED = re.compile(r"_[1-7]bit\b")
"""Part of the name of an operator whose weights are packed, so that elements are not weights."""
_FOUR_BITS = 15
"""Largest minus smallest value of a number of 4 bits."""
_MOST_BYTES = 64 * 1024 * 1024
"""Limit of one table: a network of 1,000 layers has 2 MB."""


def pt2_types(path: Path) -> StoredTypes:
    """The types of the stored weights, and of the inputs.

    Raises:
        OSError, BadZipFile, ValueError, KeyError, TypeError: it is not an archive of this form.
    """
    weights, program = _tables(path, _WEIGHTS, _PROGRAM)
    nodes = [_mapping(node) for node in _list(_graph(program)["nodes"])]
    operators = [str(node["target"]) for node in nodes]
    return StoredTypes(
        weights=tuple(_weights(weights, _four_bit_weights(program, nodes))),
        inputs=tuple(_pt2_type(meta) for _name, meta in _ends(program) if meta is not None),
        outputs=tuple(
            _pt2_type(meta) for _name, meta in _ends(program, "output") if meta is not None
        ),
        hides_weights=any(map(PACKED.search, operators)),
        is_quantised=any(map(QUANTISED.match, operators)),
    )


def pt2_inputs(path: Path) -> list[StoredInput]:
    """The inputs of the program; a free size is called after the input that has it first.

    Raises:
        OSError, BadZipFile, ValueError, KeyError, TypeError: it is not an archive of this form.
    """
    (program,) = _tables(path, _PROGRAM)
    names: dict[str, str] = {}
    found = [(name, meta, [] if meta is None else _sizes(meta)) for name, meta in _ends(program)]
    for name, _, sizes in found:
        for place, size in enumerate(sizes):
            if isinstance(size, str) and (_WORD.fullmatch(size) or not _PLAIN_SUM.fullmatch(size)):
                names.setdefault(size, f"{name}_{place}")
    return [
        StoredInput(
            name=name,
            dtype="" if meta is None else _pt2_type(meta),
            sizes=tuple(
                names.get(one) or _WORD.sub(lambda found: names.get(found[0], found[0]), one)
                if isinstance(one, str)
                else one
                for one in sizes
            ),
        )
        for name, meta, sizes in found
    ]


def _sizes(meta: Mapping[str, object]) -> list[int | str]:
    """Numbers, symbols such as `s27`, and sums of products of them such as `s27 + 2 * s64`."""
    found: list[int | str] = []
    for size in _list(meta["sizes"]):
        known = _mapping(size).get("as_int")
        if isinstance(known, int):
            found.append(known)
        else:
            found.append(_plain(str(_mapping(_mapping(size)["as_expr"])["expr_str"])))
    return found


def _plain(text: str) -> str:
    """An expression as sympy's `srepr` writes it; other forms than sums stay as they are.

    The first term has no sign, so that `Add(Mul(Integer(-1), a), b)` is `b - a`.
    """
    short = _ATOM.sub(lambda found: found[1] or found[2], text)
    short = _PRODUCT.sub(lambda found: found[1].replace(", ", " * "), short)
    terms = _SUM.fullmatch(short)
    if terms is None:
        return short if _PLAIN_SUM.fullmatch(short) else text
    added = [term for term in terms[1].split(", ") if not term.startswith("-")]
    taken = [term[1:].removeprefix("1 * ") for term in terms[1].split(", ") if term[0] == "-"]
    return " - ".join([" + ".join(added), *taken]) if added else text


def _tables(path: Path, *names: str) -> list[Mapping[str, object]]:
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
        return [_table(archive, members[name]) for name in names]


def _table(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Mapping[str, object]:
    # The directory's size may be wrong, so reading is limited too.
    with archive.open(member) as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{member.filename} is too large")
    table = json.loads(text)
    return _mapping(table)


def _weights(table: Mapping[str, object], four_bit: Set[str]) -> Iterator[tuple[str, int]]:
    for name, entry in _mapping(table["config"]).items():
        meta = _mapping(_mapping(entry)["tensor_meta"])
        sizes = (_mapping(size).get("as_int") for size in _list(meta["sizes"]))
        known = [size if isinstance(size, int) else 1 for size in sizes]
        yield "int4" if name in four_bit else _pt2_type(meta), elements_of(known)


def _four_bit_weights(
    program: Mapping[str, object], nodes: Iterable[Mapping[str, object]]
) -> set[str]:
    """Weights that are dequantised from a range of 4 bits; the file stores each in a byte."""
    names = dict[object, str]()
    for spec in map(_mapping, _list(_signature(program)["input_specs"])):
        for kind in spec.keys() & {"parameter", "buffer"}:
            stored = _mapping(spec[kind])
            names[_mapping(stored["arg"])["name"]] = str(stored[f"{kind}_name"])
    found = set[str]()
    for node in nodes:
        given = {
            _mapping(one)["name"]: _mapping(_mapping(one)["arg"]) for one in _list(node["inputs"])
        }
        least, most = (given.get(name, {}).get("as_int") for name in ("quant_min", "quant_max"))
        if isinstance(least, int) and isinstance(most, int) and most - least <= _FOUR_BITS:
            tensor = _mapping(given.get("input", {}).get("as_tensor", {}))
            found |= {names[name] for name in [tensor.get("name")] if name in names}
    return found


def _ends(
    program: Mapping[str, object], end: str = "input"
) -> Iterator[tuple[str, Mapping[str, object] | None]]:
    """The name of each input or output, and the facts of its tensor; `None` if it is not one."""
    tensors = _mapping(_graph(program)["tensor_values"])
    for spec in _list(_signature(program)[f"{end}_specs"]):
        user = _mapping(spec).get(f"user_{end}")
        argument = {} if user is None else _mapping(_mapping(user)["arg"])
        if "as_tensor" in argument:
            name = str(_mapping(argument["as_tensor"])["name"])
            yield name, _mapping(tensors[name])
        elif user is not None:
            yield "an argument that is not a tensor", None


def _graph(program: Mapping[str, object]) -> Mapping[str, object]:
    return _mapping(_mapping(program["graph_module"])["graph"])


def _signature(program: Mapping[str, object]) -> Mapping[str, object]:
    return _mapping(_mapping(program["graph_module"])["signature"])


def _pt2_type(meta: Mapping[str, object]) -> str:
    code = meta["dtype"]
    return _PT2_TYPES.get(code, "") if isinstance(code, int) else ""


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError("not a table")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


# Reads number types and inputs of an ExecuTorch program, as far as delegates leave them readable.
#
# Source: executorch/schema/program.fbs and scalar_type.fbs (1.5) for field numbers and types.

_PROGRAM_PLANS = 1
_PLAN_VALUES, _PLAN_INPUTS, _PLAN_OUTPUTS, _PLAN_OPERATORS, _PLAN_DELEGATES = 2, 3, 4, 6, 7
_OPERATOR_NAME = 0
_VALUE_KIND, _VALUE = 0, 1
_IS_TENSOR, _IS_STRING = 5, 6
"""Places in the union `KernelTypes`, which counts from 1."""
_PTE_TENSOR_TYPE, _TENSOR_SIZES, _PTE_TENSOR_BUFFER = 0, 2, 5
_PTE_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 11: "bool", 12: "int8", 13: "uint8", 15: "bfloat16",
}  # fmt: skip


def pte_types(data: bytes) -> StoredTypes:
    """The types of the first method: tensors with a constant buffer, inputs and outputs.

    Weights of a delegated part are inside the delegate's own data, which is not read.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: it is not a program.
    """
    plan = _plan(data)
    values = list(plan.tables(_PLAN_VALUES))
    tensors = [_pte_tensor(value) for value in values]
    inputs = plan.numbers(_PLAN_INPUTS)
    operators = [operator.text(_OPERATOR_NAME) for operator in plan.tables(_PLAN_OPERATORS)]
    ends = [
        tuple(_pte_type(tensor) for i in end if (tensor := tensors[i]) is not None)
        for end in (inputs, plan.numbers(_PLAN_OUTPUTS))
    ]
    return StoredTypes(
        weights=tuple(
            (_pte_type(tensor), elements_of(tensor.numbers(_TENSOR_SIZES, MOST_DIMENSIONS)))
            for tensor in tensors
            if tensor is not None and tensor.number(_PTE_TENSOR_BUFFER)
        ),
        inputs=ends[0],
        outputs=ends[1],
        strings=tuple(
            f"input_{place}"
            for place, number in enumerate(inputs)
            if values[number].number(_VALUE_KIND, "<B") == _IS_STRING
        ),
        hides_weights=plan.length(_PLAN_DELEGATES) > 0 or any(map(PACKED.search, operators)),
        is_quantised=any(map(QUANTISED.match, operators)),
    )


def pte_inputs(data: bytes) -> list[StoredInput]:
    """The inputs of the first method, called `input_0` on; sizes are the largest possible ones.

    Raises:
        struct.error: a table is beyond the end of the file.
        IndexError: an input is not a value of the program.
        ValueError: it is not a program.
    """
    plan = _plan(data)
    values = list(plan.tables(_PLAN_VALUES))
    found = []
    for place, at in enumerate(plan.numbers(_PLAN_INPUTS)):
        tensor = _pte_tensor(values[at])
        dtype = "" if tensor is None else _pte_type(tensor)
        sizes = () if tensor is None else tensor.numbers(_TENSOR_SIZES, MOST_DIMENSIONS)
        found.append(StoredInput(name=f"input_{place}", dtype=dtype, sizes=sizes))
    return found


def _plan(data: bytes) -> Table:
    plan = next(Table.root(data).tables(_PROGRAM_PLANS), None)
    if plan is None:
        raise ValueError("no method")
    return plan


def _pte_tensor(value: Table) -> Table | None:
    return value.table(_VALUE) if value.number(_VALUE_KIND, "<B") == _IS_TENSOR else None


def _pte_type(tensor: Table) -> str:
    return _PTE_TYPES.get(tensor.number(_PTE_TENSOR_TYPE, "<B"), "")


# Reads the number types and the inputs of a TFLite FlatBuffer.
#
# Source: tensorflow/lite/schema/schema.fbs: of `Model`, field 2 is the subgraphs and field 4 the
# buffers; of `Buffer`, field 0 is data, fields 1 and 2 offset and size of appended data; of
# `SubGraph`, fields 0 to 2 are tensors, inputs and outputs; of `Tensor`, fields 0 to 3 are shape,
# type, buffer and name, and field 7 is the shape with -1 for a free size. Field 7 of `Model` is
# the signatures; of `SignatureDef`, field 1 is pairs of name and tensor for the outputs, and
# field 4 the subgraph. Field 4 of `Tensor` is its quantization: field 2 is the scales, field 3 the
# zero points, and field 4 is above 0 if scales are elsewhere.

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
    model = Table.root(data)
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


def _tensor_scale(tensor: Table) -> Scale | None:
    """Of a tensor of integers with one scale."""
    found = tensor.table(_TENSOR_QUANTIZATION)
    if found is None or found.length(_SCALES) != 1 or _type(tensor) in _FLOATS:
        return None
    # Zero points have eight bytes: read as numbers of four, the first is the lower half.
    return _scale(found.floats(_SCALES)[0], next(iter(found.numbers(_ZEROS)), 0))


def tflite_scales(data: bytes) -> Iterator[tuple[str, tuple[float, ...]]]:
    """The name and the scales of each tensor whose integers are quantised.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: tables overlap.
    """
    n_read = 0
    for graph in Table.root(data).tables(_MODEL_SUBGRAPHS):
        for tensor in graph.tables(_GRAPH_TENSORS):
            found = tensor.table(_TENSOR_QUANTIZATION)
            n_read += 1 if found is None else 1 + found.length(_SCALES)
            if n_read > len(data):
                raise ValueError("tables overlap")
            if found is None or _type(tensor) not in _OF_QUANTISED:
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
    for signature in Table.root(data).tables(_MODEL_SIGNATURES):
        if signature.number(_SIGNATURE_GRAPH) == 0:
            for pair in signature.tables(_SIGNATURE_OUTPUTS):
                names[pair.number(_PAIR_TENSOR)] = pair.text(_PAIR_NAME)
    return _border(data, _GRAPH_OUTPUTS, names)


def _border(data: bytes, field: int, names: Mapping[int, str]) -> list[StoredInput]:
    graph = next(Table.root(data).tables(_MODEL_SUBGRAPHS), None)
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


def _type(tensor: Table) -> str:
    return _TYPES.get(tensor.number(_TFLITE_TENSOR_TYPE, "<B"), "")


def check_buffers(data: bytes) -> None:
    """Checks that the file contains all of its weights, without reading the rest.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: a buffer's data is beyond the end of the file.
    """
    model = Table.root(data)
    if model.place(_MODEL_BUFFERS) is None:
        raise ValueError("no buffers")
    for buffer in model.tables(_MODEL_BUFFERS):
        appended = buffer.number(_BUFFER_OFFSET, "<Q") + buffer.number(_BUFFER_SIZE, "<Q")
        if max(buffer.end(_BUFFER_DATA), appended) > len(data):
            raise ValueError("a buffer ends beyond the end of the file")


_LOG = logging.getLogger(__name__)
UNREADABLE = (
    OSError, ValueError, KeyError, IndexError, TypeError, RecursionError, NotImplementedError,
    RuntimeError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What the readers raise on a file that is damaged, encrypted or of another version."""


def read_types(path: Path, format_: Format) -> StoredTypes | None:
    """The number types that a file states; `None` if they cannot be read.

    A damaged file is not reported here: the export checks the file and reports what is wrong.
    """
    readers = {Format.ONNX: onnx_types, Format.TFLITE: tflite_types, Format.PTE: pte_types}
    try:
        if format_ not in RUNTIME_OF_FORMAT:
            facts = described(format_, str(path))
            weights = ((facts.weight_type, facts.parameters),)
            return StoredTypes(weights=weights, parameters=facts.parameters)
        return pt2_types(path) if format_ is Format.PT2 else readers[format_](path.read_bytes())
    except UNREADABLE as error:
        _LOG.debug("types of %s not read: %s", path, error)
        return None


def read_inputs(path: Path, format_: Format) -> list[StoredInput]:
    """The inputs that a file states.

    Raises:
        UNREADABLE: it is not a readable file of this format.
    """
    if format_ not in RUNTIME_OF_FORMAT:
        raise NotImplementedError(f"the runtime of {format_} files states their inputs")
    readers = {Format.ONNX: onnx_inputs, Format.TFLITE: tflite_inputs, Format.PTE: pte_inputs}
    return pt2_inputs(path) if format_ is Format.PT2 else readers[format_](path.read_bytes())
