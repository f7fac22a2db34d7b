"""Model files: what looks at them before a runtime does."""

import ast
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from mutation import HOSTILE, arbitrary, as_json, documents, mutated, one_of
from target import ROOT, Target, as_file, scratch
from tiny_onnx import save_tiny_onnx

from fleetrank.device_agents.errors import AgentError
from fleetrank.device_agents.runtimes import executorch_runner
from fleetrank.device_agents.runtimes.pt2_program import checked_program
from fleetrank.device_agents.runtimes.pt2_scan import copy_checked
from fleetrank.foundation.vocabulary import Family, Format
from fleetrank.models.cards.card import ExportRequest, ModelCard, ResolvedCard, Source, Weights
from fleetrank.models.cards.inputs import AXIS_NAME
from fleetrank.models.errors import ModelError
from fleetrank.models.export.exporters import EXPORTERS
from fleetrank.models.file_inputs import inputs_of
from fleetrank.models.files import stage_onnx
from fleetrank.models.number_types import read_types

TFLITE = tuple(
    (ROOT / path).read_bytes()
    for path in ("tests/device_agents/data/tiny.tflite", "models/networks/primer.tflite")
)
PTE = (ROOT / "tests/device_agents/data/tiny.pte").read_bytes()
PT2 = (ROOT / "tests/data/pt2/tiny.pt2").read_bytes()
EXPRESSIONS = (
    "s0*2", "Max(1, s0)", "Symbol('s0', positive=True)", "s0.real", "__import__", "lambda: 0",
    "[x for x in s0]", "Max(*s0)", "s0 if s1 else 0", "eval(s0)", "s0;s1", "'a'", "1e999", "s0\n",
    "9**9**9", "(" * 300, "Mod(s0, 2) < 3", "Integer(1).a",
)  # fmt: skip
PICKLE = b"\x80\x02" + b"ccollections\nOrderedDict\n)R." + b""
GLOBALS = (
    b"cos\nsystem\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n",
    b"ctorch\nload\n", b"ibuiltins\neval\n", b"\x8c\x02os\x8c\x06system\x93", b"o", b"R", b"b",
    b"(", b"t", b".", b"0", b"2", b"\x82\x01", b"X\x01\x00\x00\x00a", b"}", b"]", b"K\x01",
    b"\x81", b"\x92",
)  # fmt: skip


def pt2_archive(data: bytes) -> object:
    """The copy that is loaded has the same content for a reader that finds members elsewhere."""
    path, copy = as_file(data, "artifacts/model.pt2"), scratch() / "artifacts/copy.pt2"
    copy.unlink(missing_ok=True)
    copy_checked(str(path), copy)
    with zipfile.ZipFile(copy) as archive:
        ours = {name: archive.read(name) for name in archive.namelist()}
    assert dict(_members_by_offset(copy.read_bytes())) == ours, "two readers see two archives"
    return sorted(ours)


def _members_by_offset(data: bytes) -> Iterator[tuple[str, bytes]]:
    """As PyTorch's reader finds members: by the end record's absolute offset of the directory."""
    end = data.rfind(b"PK\5\6")
    count, _size, at = struct.unpack_from("<10xHII", data, end)
    for _number in range(count):
        fields = struct.unpack_from("<4s6xH8xIIHHH8xI", data, at)
        sign, method, size, full, n_name, n_extra, n_comment, local = fields
        assert sign == b"PK\1\2", "the directory is not where the end record says"
        name = data[at + 46 : at + 46 + n_name]
        n_local, n_local_extra = struct.unpack_from("<26xHH", data, local)
        start = local + 30 + n_local + n_local_extra
        with zipfile.ZipFile(io.BytesIO(_alone(data[start : start + size], method, full))) as one:
            yield name.decode(), one.read("x")
        at += 46 + n_name + n_extra + n_comment


def _alone(raw: bytes, method: int, full: int) -> bytes:
    """An archive of one member around compressed bytes; its checksum is not compared."""
    content = raw if method == 0 else zlib.decompress(raw, -15)
    assert len(content) == full, "the directory gives another size"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x", content)
    return out.getvalue()


def graph_json(data: bytes) -> object:
    """What is accepted as an expression is one of numbers, names, calls and operators."""
    checked = checked_program(data)
    assert checked_program(checked) == checked, "what was checked is changed by a second look"
    for expression in _expressions(json.loads(checked)):
        try:
            tree = ast.parse(expression, mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        kinds = {type(node) for node in ast.walk(tree)}
        assert all(issubclass(kind, _PLAIN) for kind in kinds), f"{expression!r} was accepted"
    return checked[:200]


_PLAIN = (
    ast.Expression, ast.Name, ast.Call, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Load,
    ast.operator, ast.unaryop, ast.cmpop, ast.Tuple, ast.keyword,
)  # fmt: skip


def _expressions(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "expr_str" and isinstance(inner, str):
                yield inner
            else:
                yield from _expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _expressions(inner)


def onnx_file(data: bytes) -> object:
    path = as_file(data, "artifacts/m.onnx")
    return stage_onnx(path, scratch() / "artifacts/staged.onnx", 8)


def onnx_inputs(data: bytes) -> object:
    """Names of axes are such that a card accepts them."""
    inputs = inputs_of(as_file(data, "artifacts/m.onnx"), Format.ONNX)
    names = {size for one in inputs for size in one.shape if isinstance(size, str)}
    assert all(re.fullmatch(AXIS_NAME, name) for name in names), names
    return inputs


def tflite_file(data: bytes) -> object:
    return _copied(Format.TFLITE, as_file(data, "artifacts/m.tflite"))


def pte_file(data: bytes) -> object:
    path = as_file(data, "artifacts/m.pte")
    _copied(Format.PTE, path)
    executorch_runner._check_identifier(str(path))
    return executorch_runner._check_delegates(str(path), ("XnnpackBackend", "VulkanBackend"))


def users_pt2_file(data: bytes) -> object:
    return _copied(Format.PT2, as_file(data, "artifacts/mine.pt2"))


def file_types(data: bytes) -> object:
    """The plan reads the types of every file: whatever it holds, nothing is raised; and inputs."""
    paths = {format_: as_file(data, f"artifacts/types.{format_}") for format_ in Format}
    found = [read_types(path, format_) for format_, path in paths.items()]
    for format_, path in paths.items():
        with suppress(ModelError):
            inputs_of(path, format_)
    return [types and types.precision for types in found]


def _copied(format_: Format, path: Path) -> object:
    card = ModelCard(name="mine", family=Family.OTHER, source=Source.FILE, entry=str(path))
    request = ExportRequest(
        model=ResolvedCard(card=card, sha256=""), weights=Weights(), format=format_
    )
    return EXPORTERS[format_].copy(path, scratch() / f"artifacts/staged.{format_}", request)


@cache
def _onnx_samples() -> tuple[bytes, ...]:
    (scratch() / "artifacts").mkdir(exist_ok=True)
    return (save_tiny_onnx(scratch() / "artifacts/sample.onnx").read_bytes(),)


def _members(archive: bytes = PT2) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


GRAPH = json.loads(_members()["tiny/models/model.json"])


@cache
def _archives() -> tuple[bytes, ...]:
    """A real one, one that is packed, one with a pickle, one with two directories."""
    members = _members()
    table = {"config": {"w": {"path_name": "weight_0", "use_pickle": True}}}
    pickled = members | {
        "tiny/data/weights/model_weights_config.json": as_json(table),
        "tiny/data/weights/weight_0": _zip({"t/data.pkl": PICKLE, "t/data/0": b"\0" * 8}),
    }
    # The readers of such a file go by different directories.
    twice = _zip(members | {"tiny/models/model.json": b"{}"}) + _zip(members)
    return PT2, _zip(members), _zip(members, zipfile.ZIP_DEFLATED), _zip(pickled), twice


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def _zip_inputs() -> st.SearchStrategy[bytes]:
    """Whole archives with a member changed, and archives with bytes changed."""
    names = tuple(_members())
    name = st.one_of(one_of(names), one_of(names), one_of(HOSTILE), st.text(max_size=20))
    content = st.one_of(
        documents(GRAPH, ("target", "expr_str"), as_json), mutated((PICKLE,), GLOBALS), arbitrary()
    )
    graph = st.builds(_changed_archive, st.just("tiny/models/model.json"), _graph_inputs())
    changed = st.one_of(graph, st.builds(_changed_archive, name, content))
    words = (
        b"PK\5\6",
        b"PK\1\2",
        b"PK\3\4",
        b"\x08\x00",
        b"\x01\x00",
        b"PK\6\6",
        b"../",
        b"\x0e\x00",
    )
    return st.one_of(changed, mutated(_archives(), words), mutated(_archives(), words))


def _changed_archive(name: str, content: bytes) -> bytes:
    return _zip({**_members(), name.replace("\0", "") or "tiny/x": content})


def _graph_inputs() -> st.SearchStrategy[bytes]:
    expression = st.one_of(one_of(EXPRESSIONS), st.text("s0()*+-.,' lambdinevxf_=\n", max_size=20))
    with_expression = expression.map(
        lambda text: as_json({"as_expr": {"expr_str": text}, "target": "math.floor"})
    )
    keys = ("target", "expr_str", "name", "as_operator", "in_spec", "metadata", "guards_code")
    words = tuple(text.encode() for text in EXPRESSIONS)
    return st.one_of(
        with_expression, documents(GRAPH, keys, as_json), mutated((as_json(GRAPH),), words)
    )


REFUSALS = (AgentError, ModelError)
TARGETS = (
    Target(pt2_archive, st.deferred(_zip_inputs)),
    # The copy of an archive turns the ValueError into one of ours.
    Target(graph_json, _graph_inputs(), may_raise=(ValueError,)),
    Target(
        file_types,
        st.deferred(
            lambda: st.one_of(
                mutated((*_onnx_samples(), *TFLITE, PTE), (b"\xff\xff", b"\0\0\0\0")), _zip_inputs()
            )
        ),
    ),
    Target(
        onnx_file,
        st.deferred(lambda: mutated(_onnx_samples(), (b"\x0a\x04", b"/etc/passwd", b"\x12"))),
        share=0.5,
    ),
    Target(
        onnx_inputs, st.deferred(lambda: mutated(_onnx_samples(), (b"\x12\x00", b"N", b"\xff")))
    ),
    Target(tflite_file, mutated(TFLITE)),
    Target(pte_file, mutated((PTE,), (b"VulkanBackend\0", b"ET12"))),
    Target(users_pt2_file, st.deferred(_zip_inputs), share=0.5),
)
