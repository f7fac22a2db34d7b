"""Reads the number types and inputs of a `.pt2` archive from its tables, without PyTorch.

Source: torch 2.13, _export/serde/schema.py: `ScalarType`, and the layout of an archive; older
archives have other members, which are not read.
"""

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

from fleetrank.foundation.onnx_file import StoredInput
from fleetrank.models.stored_types import StoredTypes, elements_of

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
