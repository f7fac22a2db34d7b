"""The allowed content of the program in a `.pt2`: known keys, and a known form for every value.

PyTorch turns these texts into names, calls and source code. A value without a form is rejected, and
the text that PyTorch gets is written from the checked values.

| text in the file | what PyTorch does with it | form |
|---|---|---|
| `target`, `as_operator` | finds attributes of `torch`, `math`, `_operator`; calls | `operator` |
| `expr_str` | `sympy.sympify`, which is `eval` | `expression` |
| keys of `range_constraints` | looks them up | `range_key` |
| names of nodes, values, subgraphs | writes them into source that it executes | `identifier` |
| keywords of calls, of `in_spec`, `forward_arg_names` | the same | `identifier` |
| names of weights and submodules | the same, in quotes; attributes of modules | `dotted_path` |
| strings as arguments | quoted into that source; raw into C++ in mode compile | `plain_text` |
| `in_spec`, `out_spec` | finds types; a context may name a module to import | `tree_spec` |
| `filename` of `aten::save`, `aten::from_file` | opens the file | neither operator |
| `stack_trace`, `nn_module_stack`, `torch_fn` | comments of source | `note` |
| the rest of `metadata`, `guards_code` | attributes, JSON; `exec` | left out |
| custom objects, pickled tensors | unpickles them | no key; `use_pickle` is false |

Source: torch 2.13, _export/serde/schema.py and serialize.py, export/_unlift.py, fx/graph.py.
"""

import ast
import io
import json
import keyword
import math
import os
import pickletools
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, BinaryIO

from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.foundation.codec import Json
from fleetrank.foundation.errors import failing_as

# The allowed forms of values in the JSON of a `.pt2`, mainly of texts.
#
# A form takes a value and its key, and returns the value to write. The first lines of this module
# list which value has which form, and what PyTorch does with it.

Form = Callable[[Json, str], Json]
"""Raises `UnfitError` for a value that does not have this form."""

_TARGET = re.compile(
    r"torch\.ops\.(aten|prims|quantized|quantized_decomposed)\.(?!from_file\b|save\b|__)\w+\."
    r"(?!__)\w+|"
    r"torch\.ops\.aten\.__(and|or|xor|lshift|rshift)__\.\w+|"
    r"torch\.ops\.higher_order\.(cond|while_loop|wrap_with_set_grad_enabled|wrap_with_autocast)|"
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|getitem|eq|ne|lt|le|gt|ge|and_|or_|"
    r"not_|xor)|math\.[a-z][a-z0-9]*|torch\.sym_[a-z]+|torch\._sym_[a-z]+",
    re.ASCII,
)
_TEXT = re.compile(r"[\w ,.:;+\-*/%<>=()\[\]]*", re.ASCII)
_NO_NOTE = re.compile(r"[^\w .,;:/()\[\]@=-]", re.ASCII)
_PATH = re.compile(r"([\w\-+:@]+(\.[\w\-+:@]+)*)?", re.ASCII)
_WORDS = re.compile(r"[\w.\-+<=]*", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?", re.ASCII)
_SYMBOL = re.compile(r"(s|u|zf|zuf)\d{1,6}", re.ASCII)
_CONSTANTS = frozenset({"int_oo", "oo", "true", "false"})
_FUNCTIONS = frozenset(
    {"Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "Float",
     "FloatPow", "FloatTrueDiv", "FloorDiv", "FloorToInt", "Ge", "GreaterThan", "Gt", "Identity",
     "IntTrueDiv", "Integer", "Le", "LessThan", "LShift", "Lt", "Max", "Min", "Mod",
     "ModularIndexing", "Mul", "Ne", "Not", "Or", "Pow", "PowByNatural", "PythonMod", "RShift",
     "Rational", "RoundDecimal", "RoundToInt", "StrictGreaterThan", "StrictLessThan", "Symbol",
     "ToFloat", "TruncToFloat", "TruncToInt", "Unequality", "Where"}
)  # fmt: skip
_ASSUMPTIONS = frozenset({"positive", "nonnegative", "negative", "integer", "real", "precision"})
_SYNTAX = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.Load
)  # fmt: skip
_TREES = frozenset(
    {"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}
)  # fmt: skip
"""Containers whose description names no module to import; a `defaultdict`'s does."""
_SPECIAL_NUMBERS = frozenset({"Infinity", "-Infinity", "NaN"})
_TAKEN = frozenset({"self", "torch"})
"""Names with a meaning in the generated source."""


class UnfitError(ValueError):
    """A value that does not have its form."""

    def __init__(self, key: str, value: object) -> None:
        super().__init__(f"{key or 'name'} {str(value)[:80]!r}")


def rewritten(text: bytes, form: Form) -> bytes:
    """Rewrites a JSON text from its parsed content, so that it has only one interpretation.

    Raises:
        ValueError: it is not JSON; an `UnfitError` if it has another form.
    """
    try:
        plain: Json = json.loads(text, object_pairs_hook=_no_key_twice)
        return json.dumps(form(plain, ""), allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_key_twice(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice in one object")
    return found


def record(fields: Mapping[str, Form]) -> Form:
    """An object with some of these keys; PyTorch reports a missing key."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, dict):
            raise UnfitError(key, value)
        for name in value:
            if name not in fields:
                raise UnfitError(f"{key} with the key", name)
        return {name: fields[name](each, name) for name, each in value.items()}

    return form


def union(fields: Mapping[str, Form]) -> Form:
    """An object with exactly one of these keys."""
    one = record(fields)

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, dict) or len(value) != 1:
            raise UnfitError(key, value)
        return one(value, key)

    return form


def listed(item: Form) -> Form:
    """A list of values of this form."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, list):
            raise UnfitError(key, value)
        return [item(each, key) for each in value]

    return form


def mapping(names: Form, item: Form) -> Form:
    """An object with any keys of one form."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, dict):
            raise UnfitError(key, value)
        return {str(names(name, key)): item(each, key) for name, each in value.items()}

    return form


def optional(item: Form) -> Form:
    """A value of this form, or null."""
    return lambda value, key: None if value is None else item(value, key)


def left_out(value: Json) -> Form:
    """A value that a network does not need; PyTorch gets this replacement."""
    return lambda _value, _key: value


def note(value: Json, key: str) -> Json:
    """A text for display; `_` replaces each character that could end a comment or a string.

    Its length stays the same, because the row's memory figure includes it.
    """
    if not isinstance(value, str):
        raise UnfitError(key, value)
    return _NO_NOTE.sub("_", value)


def boolean(value: Json, key: str) -> Json:
    """True or false."""
    if not isinstance(value, bool):
        raise UnfitError(key, value)
    return value


def integer(value: Json, key: str) -> Json:
    """An integer of at most 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1 << 64:
        raise UnfitError(key, value)
    return value


def number(value: Json, key: str) -> Json:
    """A finite number, or a word that PyTorch writes for one that is not finite."""
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str) and value in _SPECIAL_NUMBERS:
        return value
    return integer(value, key)


def one_of(values: frozenset[str]) -> Form:
    """One of these words."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, str) or value not in values:
            raise UnfitError(key, value)
        return value

    return form


def matching(pattern: re.Pattern[str]) -> Form:
    """A text that matches completely."""

    def form(value: Json, key: str) -> Json:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise UnfitError(key, value)
        return value

    return form


def identifier(value: Json, key: str) -> Json:
    """A name that is safe in source code: an identifier, not a keyword, not a `__name__`."""
    if (
        not isinstance(value, str)
        or not (value.isascii() and value.isidentifier())
        or keyword.iskeyword(value)
        or value.startswith("__")
        or value in _TAKEN
    ):
        raise UnfitError(key, value)
    return value


def dotted_path(value: Json, key: str) -> Json:
    """The path of a weight or a submodule from the root; no part is a `__name__`."""
    text = matching(_PATH)(value, key)
    if any(part.startswith("__") for part in str(text).split(".")):
        raise UnfitError(key, value)
    return text


def expression(value: Json, key: str) -> Json:
    """Sums, products, comparisons and known functions of symbols."""
    is_text = isinstance(value, str) and value.isascii()
    try:
        tree = ast.parse(str(value), mode="eval") if is_text else None
    except (SyntaxError, MemoryError) as error:
        raise UnfitError(key, value) from error
    if tree is None or not _is_expression(tree.body):
        raise UnfitError(key, value)
    return ast.unparse(tree)


def _is_expression(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return _is_call(node)
    if isinstance(node, ast.Name):
        return node.id in _CONSTANTS or _SYMBOL.fullmatch(node.id) is not None
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float)
    return isinstance(node, _SYNTAX) and all(map(_is_expression, ast.iter_child_nodes(node)))


def _is_call(node: ast.Call) -> bool:
    """Strings are allowed only in `Symbol` and `Float`, as sympy's `srepr` writes them."""
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
        return False
    for word in node.keywords:
        is_plain = isinstance(word.value, ast.Constant) and isinstance(word.value.value, int)
        if word.arg not in _ASSUMPTIONS or not is_plain:
            return False
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        form = {"Symbol": _SYMBOL, "Float": _DECIMAL}.get(node.func.id)
        return form is not None and len(node.args) == 1 and bool(form.fullmatch(first.value))
    return node.func.id != "Symbol" and all(map(_is_expression, node.args))


def range_key(value: Json, key: str) -> Json:
    """The key of a range; it must stay as PyTorch wrote it, because PyTorch looks it up."""
    expression(value, key)
    return value


def tree_spec(keys: Form) -> Form:
    """A tree specification: builtin containers; their only context is a list of `keys`."""

    def form(value: Json, key: str) -> Json:
        plain: Json = json.loads(value) if isinstance(value, str) else None
        if not (isinstance(plain, list) and len(plain) == 2 and plain[0] == 1):
            raise UnfitError(key, value)
        return json.dumps([1, node(plain[1], key)])

    def node(value: Json, key: str) -> Json:
        if not isinstance(value, dict):
            raise UnfitError(key, value)
        kind, children = value.get("type"), value.get("children_spec")
        if kind is not None:
            one_of(_TREES)(kind, key)
        context = value.get("context")
        names: Json = json.loads(context) if isinstance(context, str) else context
        if names is not None:
            names = listed(keys)(names, key)
        return {
            "type": kind,
            "context": None if kind is None else json.dumps(names),
            "children_spec": listed(node)(children, key),
        }

    return form


operator = matching(_TARGET)
plain_text = matching(_TEXT)
version_text = matching(_WORDS)


_HAS_SCHEMA = re.compile(r"torch\.ops\.(?!higher_order\.)")
"""PyTorch matches arguments of these operators by schema; for others, names become keywords."""
STRING_ARGUMENTS = frozenset(
    {"activation", "algorithm", "api_name", "approximate", "driver", "equation",
     "indexing", "interpolation", "mode", "norm", "ord", "p", "pad_mode", "padding",
     "padding_side", "reduce", "rounding_mode", "side", "UPLO"}
)  # fmt: skip
"""Arguments of operators that are strings, by the operators' schemas."""
_NOTES = frozenset({"nn_module_stack", "stack_trace", "torch_fn"})
_MESSAGE = "assert_msg"
"""Free text that the network does not need."""
_DEVICES = frozenset({"cpu", "cuda", "meta"})


def checked_program(text: bytes) -> bytes:
    """The text of `models/model.json`, written from the checked values.

    Raises:
        ValueError: it is not JSON, or contains more than a graph of known operators.
    """
    return rewritten(text, _PROGRAM)


def checked_table(text: bytes) -> bytes:
    """The text of a table of weights or constants, written from the checked values.

    Raises:
        ValueError: it is not JSON, or a payload in it is pickled or outside its folder.
    """
    return rewritten(text, _PAYLOADS)


def _notes(value: Json, key: str) -> Json:
    """Notes on a node for display; PyTorch looks up names in other metadata, or parses JSON."""
    if not isinstance(value, dict):
        raise UnfitError(key, value)
    return {name: note(text, name) for name, text in value.items() if name in _NOTES}


def _graph(value: Json, key: str) -> Json:
    return _GRAPH(value, key)


def _node(value: Json, key: str) -> Json:
    """A call of an operator; PyTorch finds inputs by name, or makes them keywords."""
    target = value.get("target") if isinstance(value, dict) else None
    has_schema = _HAS_SCHEMA.match(str(target)) is not None
    inputs = listed(_input_by_schema if has_schema else _INPUT_BY_KEYWORD)
    return record({**_NODE, "inputs": inputs})(value, key)


def _input_by_schema(value: Json, key: str) -> Json:
    """A string is allowed only where an allowed operator takes one."""
    fields = value if isinstance(value, dict) else {}
    if fields.get("name") == _MESSAGE:
        return {"name": _MESSAGE, "arg": {"as_string": "an assertion of the network failed"}}
    argument = fields.get("arg")
    takes_text = isinstance(argument, dict) and bool(argument.keys() & _STRINGS)
    return record({**_INPUT, "name": _STRING_NAME if takes_text else _SCHEMA_NAME})(value, key)


def _keyword(value: Json, key: str) -> Json:
    return value if value == "" else identifier(value, f"keyword {key}")


def _no_pickle(value: Json, key: str) -> Json:
    if value is not False:
        raise UnfitError(key, value)
    return value


_DEVICE = record({"type": one_of(_DEVICES), "index": optional(integer)})
_HINT = union({"as_int": integer, "as_bool": boolean, "as_float": number})
_SYMBOLIC = record({"expr_str": expression, "hint": optional(_HINT)})
_SYM_INT = union({"as_expr": _SYMBOLIC, "as_int": integer})
_SYM_FLOAT = union({"as_expr": _SYMBOLIC, "as_float": number})
_SYM_BOOL = union({"as_expr": _SYMBOLIC, "as_bool": boolean})
_TENSOR_META = record(
    {"dtype": integer, "sizes": listed(_SYM_INT), "requires_grad": boolean, "device": _DEVICE,
     "strides": listed(_SYM_INT), "storage_offset": _SYM_INT, "layout": integer}
)  # fmt: skip
_TENSOR = record({"name": identifier})
_INT_ARGUMENT = union({"as_name": identifier, "as_int": integer})
_FLOAT_ARGUMENT = union({"as_name": identifier, "as_float": number})
_BOOL_ARGUMENT = union({"as_name": identifier, "as_bool": boolean})
_OPTIONAL_TENSOR = union({"as_tensor": _TENSOR, "as_none": boolean})
_ARGUMENT = union(
    {"as_none": boolean, "as_tensor": _TENSOR, "as_tensors": listed(_TENSOR), "as_int": integer,
     "as_ints": listed(integer), "as_float": number, "as_floats": listed(number),
     "as_string": plain_text, "as_strings": listed(plain_text), "as_sym_int": _INT_ARGUMENT,
     "as_sym_ints": listed(_INT_ARGUMENT), "as_scalar_type": integer,
     "as_memory_format": integer, "as_layout": integer, "as_device": _DEVICE,
     "as_bool": boolean, "as_bools": listed(boolean), "as_sym_bool": _BOOL_ARGUMENT,
     "as_sym_bools": listed(_BOOL_ARGUMENT),
     "as_graph": record({"name": identifier, "graph": _graph}),
     "as_optional_tensors": listed(_OPTIONAL_TENSOR), "as_operator": operator,
     "as_sym_float": _FLOAT_ARGUMENT, "as_sym_floats": listed(_FLOAT_ARGUMENT),
     "as_optional_tensor": _OPTIONAL_TENSOR,
     "as_complex": record({"real": number, "imag": number}),
     "as_nested_tensors": listed(listed(_TENSOR)), "as_int_lists": listed(listed(integer)),
     "as_float_lists": listed(listed(number))}
)  # fmt: skip
_STRINGS = {"as_string", "as_strings"}
_STRING_NAME = one_of(STRING_ARGUMENTS)
_SCHEMA_NAME = matching(re.compile(r"\w*", re.ASCII))
_INPUT = {"arg": _ARGUMENT, "kind": optional(integer)}
_INPUT_BY_KEYWORD = record({**_INPUT, "name": _keyword})
_NODE = {
    "target": operator,
    "outputs": listed(_ARGUMENT),
    "metadata": _notes,
    "is_hop_single_tensor_return": optional(boolean),
    "name": optional(identifier),
}
_NOTHING = mapping(identifier, one_of(frozenset()))
_GRAPH = record(
    {"inputs": listed(_ARGUMENT), "outputs": listed(_ARGUMENT), "nodes": listed(_node),
     "tensor_values": mapping(identifier, _TENSOR_META),
     "sym_int_values": mapping(identifier, _SYM_INT),
     "sym_bool_values": mapping(identifier, _SYM_BOOL),
     "sym_float_values": mapping(identifier, _SYM_FLOAT),
     "is_single_tensor_return": boolean, "custom_obj_values": _NOTHING}
)  # fmt: skip
_CONSTANT = union(
    {"as_none": boolean, "as_int": integer, "as_float": number, "as_string": plain_text,
     "as_bool": boolean}
)  # fmt: skip
_INPUT_SPEC = union(
    {"user_input": record({"arg": _ARGUMENT}),
     "parameter": record({"arg": _TENSOR, "parameter_name": dotted_path}),
     "buffer": record({"arg": _TENSOR, "buffer_name": dotted_path, "persistent": boolean}),
     "tensor_constant": record({"arg": _TENSOR, "tensor_constant_name": dotted_path}),
     "constant_input": record({"name": identifier, "value": _CONSTANT})}
)  # fmt: skip
_OUTPUT_SPEC = union(
    {"user_output": record({"arg": _ARGUMENT}), "loss_output": record({"arg": _TENSOR}),
     "buffer_mutation": record({"arg": _TENSOR, "buffer_name": dotted_path}),
     "parameter_mutation": record({"arg": _TENSOR, "parameter_name": dotted_path}),
     "gradient_to_parameter": record({"arg": _TENSOR, "parameter_name": dotted_path}),
     "gradient_to_user_input": record({"arg": _TENSOR, "user_input_name": identifier}),
     "user_input_mutation": record({"arg": _TENSOR, "user_input_name": identifier})}
)  # fmt: skip
_CALL = record(
    {"inputs": listed(_ARGUMENT), "outputs": listed(_ARGUMENT), "in_spec": tree_spec(identifier),
     "out_spec": tree_spec(plain_text), "forward_arg_names": optional(listed(identifier))}
)  # fmt: skip
_PROGRAM = record(
    {"graph_module": record(
        {"graph": _graph,
         "signature": record(
             {"input_specs": listed(_INPUT_SPEC), "output_specs": listed(_OUTPUT_SPEC)}
         ),
         "module_call_graph": listed(record({"fqn": dotted_path, "signature": optional(_CALL)})),
         "metadata": left_out({}), "treespec_namedtuple_fields": _NOTHING}
     ),
     "opset_version": mapping(identifier, integer),
     "range_constraints": mapping(
         range_key, record({"min_val": optional(integer), "max_val": optional(integer)})
     ),
     "schema_version": record({"major": integer, "minor": integer}),
     "verifiers": listed(identifier), "torch_version": version_text,
     "guards_code": left_out([])}
)  # fmt: skip


_PAYLOAD_NAME = matching(re.compile(r"(weight|tensor)_\d+", re.ASCII))
_PAYLOADS = record(
    {"config": mapping(
        dotted_path,
        record(
            {"path_name": _PAYLOAD_NAME,
             "is_param": boolean, "use_pickle": _no_pickle, "tensor_meta": _TENSOR_META}
        ),
    )}
)  # fmt: skip


# Reads an archive as PyTorch writes it, so that only one interpretation exists, and rewrites it.
#
# Python's zipfile and PyTorch's reader (miniz) find members by different rules, so a file can
# contain different members for each of them. `check_layout` rejects those that the two could read
# in different ways; even so, only what `add_member` writes, the checked content, is ever loaded.
#
# Source: PKWARE's APPNOTE 6.3.10; PyTorch 2.13, caffe2/serialize/inline_container.cc.

ALIGNMENT = 64
"""Every payload starts at a multiple of this, as in PyTorch's own files."""
MAX_DIRECTORY_BYTES = 16 * 1024 * 1024
"""Limit of the central directory: about 150,000 members; a large network has 1,000."""

_CHUNK_BYTES = 1024 * 1024
"""Weights are copied in pieces, so the worker's memory does not grow before it loads them."""
_LARGE_BYTES = 1 << 30
"""Since this size, a member's sizes are written in 64 bits."""
_PADDING_ID = 0x4246
"""Id of the extra field with which PyTorch pads to the next multiple ("FB")."""

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")
_SIZES_FOLLOW = 0x8
_KNOWN_FLAGS = _SIZES_FOLLOW | 0x800
"""The second flag says that names are UTF-8; all others (encryption, patches) are rejected."""
_IS_FOLDER = 0x10
"""A DOS attribute of a member."""
_CENTRAL_BYTES = 46


def check_layout(file: BinaryIO) -> None:
    """Rejects an archive unless its members, in order, fill it from the first to the last byte.

    Raises:
        BadZipFile: it has bytes that belong to no member, two directories, members that overlap,
            are compressed or encrypted, or headers that contradict each other.
    """
    start, size, count = _check_end(file)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        used = sum(
            _CENTRAL_BYTES + len(each.orig_filename.encode()) + len(each.extra) for each in members
        )
        if archive.start_dir != start or used != size or len(members) != count:
            raise zipfile.BadZipFile("its directory does not match the position in its end record")
        starts = [*(each.header_offset for each in members[1:]), start]
        place = 0
        for member, following in zip(members, starts, strict=True):
            if member.header_offset != place:
                raise zipfile.BadZipFile(f"{member.filename!r} does not follow the previous member")
            _check_member(file, member, following)
            place = following


def add_member(archive: zipfile.ZipFile, name: str, source: IO[bytes], size: int) -> None:
    """Appends one member, uncompressed; its payload is aligned as PyTorch aligns it.

    Args:
        archive: written to a seekable file.
        name: ASCII.
        source: read to its end.
        size: number of bytes in `source`.
    """
    info = zipfile.ZipInfo(name)
    info.file_size = size
    is_large = size > _LARGE_BYTES
    head = _LOCAL.size + len(name) + (20 if is_large else 0) + 4
    padding = -(archive.start_dir + head) % ALIGNMENT
    info.extra = struct.pack("<2H", _PADDING_ID, padding) + b"Z" * padding
    with archive.open(info, "w", force_zip64=is_large) as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)
    info.extra = b""  # the directory needs no padding


def _check_end(file: BinaryIO) -> tuple[int, int, int]:
    """Start and size of the only directory, and the number of members it lists."""
    length = file.seek(0, os.SEEK_END)
    place = length - _END.size
    sign, disk, first, here, count, size, start, comment = _END.unpack(_at(file, place, _END.size))
    if sign != b"PK\x05\x06" or (disk, first, comment) != (0, 0, 0) or here != count:
        raise zipfile.BadZipFile("it does not end with an end record")
    before = place - _LOCATOR_64.size
    if before >= 0 and _at(file, before, 4) == b"PK\x06\x07":
        place = before - _END_64.size
        found = _check_end_64(file, place)
        for short, long, limit in zip(
            (count, size, start), found, (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF), strict=True
        ):
            if short not in (long, limit):
                raise zipfile.BadZipFile("its two end records contradict each other")
        count, size, start = found
    if start + size != place:
        raise zipfile.BadZipFile("its directory does not end where its end record starts")
    if size > MAX_DIRECTORY_BYTES:
        raise zipfile.BadZipFile(f"its directory has {size} bytes")
    return start, size, count


def _check_end_64(file: BinaryIO, place: int) -> tuple[int, int, int]:
    """Members, size and start, from the 64-bit end record at this place."""
    locator = _LOCATOR_64.unpack(_at(file, place + _END_64.size, _LOCATOR_64.size))
    record = _END_64.unpack(_at(file, place, _END_64.size))
    sign, length, _made, _needed, disk, first, here, count, size, start = record
    is_known = sign == b"PK\x06\x06" and length == _END_64.size - 12
    if not is_known or locator[1:] != (0, place, 1) or (disk, first) != (0, 0) or here != count:
        raise zipfile.BadZipFile("its 64-bit end record is missing or invalid")
    return count, size, start


def _check_member(file: BinaryIO, member: zipfile.ZipInfo, following: int) -> None:
    """Compares a member's own header with the directory; its bytes end where the next begins."""
    name = member.orig_filename
    if not name.isascii() or name != member.filename or member.comment:
        raise zipfile.BadZipFile(f"{name!r} has a name or comment that readers parse differently")
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & ~_KNOWN_FLAGS:
        raise zipfile.BadZipFile(f"{name!r} is compressed or encrypted, which PyTorch does not do")
    if member.external_attr & _IS_FOLDER or member.volume != 0:
        # PyTorch's reader does not fill the memory of such a member.
        raise zipfile.BadZipFile(f"{name!r} claims to be a folder, or on another disk")
    if member.file_size != member.compress_size:
        raise zipfile.BadZipFile(f"{name!r} has two different sizes")
    head = _LOCAL.unpack(_at(file, member.header_offset, _LOCAL.size))
    sign, _needed, flags, method, _time, _date, *sizes, name_bytes, extra_bytes = head
    begin = member.header_offset + _LOCAL.size
    own_name = _at(file, begin, name_bytes)
    expected = (b"PK\x03\x04", member.flag_bits, member.compress_type, name.encode())
    if (sign, flags, method, own_name) != expected:
        raise zipfile.BadZipFile(f"{name!r} contradicts the directory")
    for own, listed in zip(sizes, (member.CRC, member.file_size, member.file_size), strict=True):
        # PyTorch leaves zeros here and writes the sizes after the payload.
        if own not in (0, 0xFFFFFFFF, listed):
            raise zipfile.BadZipFile(f"{name!r} has other sizes than the directory says")
    end = begin + name_bytes + extra_bytes + member.file_size
    tails = (16, 24) if flags & _SIZES_FOLLOW else (0,)
    if following - end not in tails:
        raise zipfile.BadZipFile(f"{name!r} does not end where the next member begins")


def _at(file: BinaryIO, place: int, size: int) -> bytes:
    if place < 0:
        raise zipfile.BadZipFile("it is too short")
    file.seek(place)
    data = file.read(size)
    if len(data) < size:
        raise zipfile.BadZipFile("it is too short")
    return data


# Accepts an untrusted `.pt2`: PyTorch gets only a copy of the checked content.
#
# `torch.export.load` and the module it returns run code from the file in five ways: unpickling
# weights, constants and sample inputs; loading compiled libraries; resolving names to functions;
# evaluating symbolic sizes; executing guards and generated source. The copy contains tensors as
# raw bytes, tables and a program written from checked values, and sample inputs whose one pickle
# names only tensors. The archive inside the archive is rewritten too.
#
# Source: torch 2.13, torch/export/pt2_archive/_package.py.

Checked = Callable[[IO[bytes], zipfile.ZipInfo, str], bytes]
"""Takes a member and its path below the root, returns the content to write."""

MAX_TEXT_BYTES = 64 * 1024 * 1024
"""Limit of one JSON inside the archive; the graph of a large network has 1 MB."""

MAX_NOTE_BYTES = 64
"""Limit of a version or a byte order."""

_ROOT = "model"
"""The only folder at the top of the copy; PyTorch names it after the file."""
_PROGRAM_ENTRY = "models/model.json"
_SAMPLES = "data/sample_inputs/model.pt"
_TABLES = re.compile(r"data/(weights|constants)/model_\1_config\.json")
_TENSORS = re.compile(r"data/(weights/weight_|constants/tensor_)?\d+", re.ASCII)
"""Raw bytes of tensors, in a network and in a file of `torch.save`."""
_NOTES_ENTRY = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)|"
    r"\.format_version|\.storage_alignment"
)
_NOTE = re.compile(rb"\d{1,40}\n?|little|big|pt2")
"""Content of a note: a version, a number, a byte order, or the format's name."""
_EXTRA = "extra/"
_GLOBALS = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)|torch \w*Storage|"
    r"torch (float|bfloat|int|uint|complex)\d+|torch (bool|Size|device)|"
    r"torch\.serialization _get_layout|torch\.nn\.parameter Parameter",
    re.ASCII,
)
"""The names in pickles of tensors; every one of them only builds a tensor."""
_FORBIDDEN_OPCODES = frozenset({"INST", "OBJ", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"})


def copy_checked(source: str, target: Path) -> None:
    """Writes an archive from the content of another one, which was checked to be a network.

    The file is synced, so that no disk write happens during the measurement.

    Raises:
        BadArtifactError: the source contains anything else, or is not an archive.
    """
    with (
        failing_as(
            BadArtifactError,
            f"{Path(source).name} is not a readable .pt2 archive",
            "export the model again",
        ),
        Path(source).open("rb") as file,
        target.open("xb") as copy,
    ):
        _copy(file, copy, _ROOT, _network_member)
        copy.flush()
        os.fsync(copy.fileno())


def check_pickle(data: bytes, where: str) -> None:
    """Rejects a pickle that names anything except tensors; it is not executed.

    Raises:
        BadArtifactError: it does, or it is not a pickle.
    """
    try:
        for opcode, argument, _position in pickletools.genops(data):
            if opcode.name in _FORBIDDEN_OPCODES or (
                opcode.name == "GLOBAL" and not _GLOBALS.fullmatch(str(argument))
            ):
                raise _refusal(where, f"a pickle that would call {argument or opcode.name}")
    except (ValueError, IndexError) as error:
        raise _refusal(where, f"a damaged pickle ({error})") from error


def _copy(file: BinaryIO, copy: BinaryIO, root: str, checked: Checked) -> None:
    """Copies an archive; `checked` returns the content of a member that is not a tensor."""
    check_layout(file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(copy, "w") as new:
        names = [member.filename for member in old.infolist()]
        if len({name.partition("/")[0] for name in names}) != 1:
            raise _refusal("the archive", "more or less than one folder at its top")
        # PyTorch's reader ignores case, and of two equal names it takes another than Python's.
        if len({name.lower() for name in names}) != len(names):
            raise _refusal("the archive", "two members of one name")
        for member in old.infolist():
            inside = member.filename.partition("/")[2]
            if inside.startswith(_EXTRA):  # files beside the network, which runs without them
                continue
            with old.open(member) as stream:
                if _TENSORS.fullmatch(inside):
                    add_member(new, f"{root}/{inside}", stream, member.file_size)
                else:
                    data = checked(stream, member, inside)
                    add_member(new, f"{root}/{inside}", io.BytesIO(data), len(data))


def _network_member(stream: IO[bytes], member: zipfile.ZipInfo, inside: str) -> bytes:
    """Chooses the check by the member's path, as PyTorch does."""
    if inside == _SAMPLES:
        # Its size is part of the row's memory figure, so it is not omitted.
        data, copy = stream.read(), io.BytesIO()
        if data:
            _copy(io.BytesIO(data), copy, "archive", _samples_member)
        return copy.getvalue()
    if inside != _PROGRAM_ENTRY and not _TABLES.fullmatch(inside):
        return _note(stream, member, inside)
    text = _text(stream, member)
    try:
        return checked_program(text) if inside == _PROGRAM_ENTRY else checked_table(text)
    except UnfitError as error:
        raise _refusal(member.filename, f"a graph with {error}") from error


def _samples_member(stream: IO[bytes], member: zipfile.ZipInfo, inside: str) -> bytes:
    """For a file of `torch.save`; with more members PyTorch would treat it as TorchScript."""
    if inside != "data.pkl":
        return _note(stream, member, inside)
    data = _text(stream, member)
    check_pickle(data, member.filename)
    return data


def _text(stream: IO[bytes], member: zipfile.ZipInfo) -> bytes:
    if member.file_size > MAX_TEXT_BYTES:
        raise _refusal(member.filename, f"{member.file_size} bytes of text")
    return stream.read()


def _note(stream: IO[bytes], member: zipfile.ZipInfo, inside: str) -> bytes:
    if not _NOTES_ENTRY.fullmatch(inside):
        raise _refusal(member.filename, "content that an exported network does not have")
    data = stream.read() if member.file_size <= MAX_NOTE_BYTES else b""
    if not _NOTE.fullmatch(data):
        raise _refusal(member.filename, f"{data[:80]!r}")
    return data


def _refusal(where: str, what: str) -> BadArtifactError:
    return BadArtifactError(
        f"{where} contains {what}, which could run code from the file",
        "if you trust its maker, run again with `trust=true`; otherwise export the model yourself",
    )
