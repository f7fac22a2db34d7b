"""Refuses a `.pt2` that could run code, before PyTorch opens it.

`torch.export.load` and the module it returns run code from the file in five ways: unpickling
weights, constants and sample inputs; loading compiled libraries under `data/aotinductor`;
resolving a node's target as any name below `torch`, `torch.os.system` included; evaluating
symbolic sizes with `sympy.sympify`; executing `guards_code`. The last is switched off by the
runner; the others are held here to what an exported network needs, and all else is refused.

Source: torch 2.13, torch/export/pt2_archive/_package.py and torch/_export/serde/serialize.py.
"""

import io
import json
import pickletools
import re
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from device_agents.codec import Json
from device_agents.errors import BadArtifactError

MAX_TEXT_BYTES = 64 * 1024 * 1024
"""Of one JSON or pickle inside the archive; the graph of a large network has 1 MB."""

_GLOBALS = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter|parameter_with_state)|"
    r"torch \w*Storage|torch (float|bfloat|int|uint|complex)\d+|torch (bool|Size|device)|"
    r"torch\.serialization _get_layout|torch\.nn\.parameter Parameter"
)
"""What pickles of tensors name, and nothing that does more than build one."""
_FORBIDDEN_OPCODES = frozenset({"INST", "OBJ", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"})
_TENSOR_MEMBERS = re.compile(
    r"data\.pkl|data/\d+|version|byteorder|\.format_version|\.storage_alignment|"
    r"\.data/serialization_id"
)
"""Members of a file by `torch.save`; others would make `torch.load` take it for TorchScript."""
_TARGET = re.compile(
    r"torch\.ops\.(aten|prims|quantized|quantized_decomposed)\.(?!from_file\b|__)\w+\.(?!__)\w+|"
    r"torch\.ops\.aten\.__(and|or|xor|lshift|rshift)__\.\w+|"
    r"torch\.ops\.higher_order\.(cond|while_loop|wrap_with_set_grad_enabled|wrap_with_autocast)|"
    r"_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|getitem|eq|ne|lt|le|gt|ge|and_|or_|"
    r"not_|xor)|math\.[a-z]\w*|torch\.sym_[a-z]+|torch\._sym_[a-z]+",
    re.ASCII,
)
_SYMBOL = re.compile(
    r"[suzf]\d+|Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|ModularIndexing|Where|Eq|Ne|And|Or|"
    r"Not|True|False|CeilToInt|FloorToInt|IntTrueDiv|FloatTrueDiv|TruncToInt|ToFloat|Pow|"
    r"PowByNatural|Identity|int_oo|e\d+|Integer|Rational|Add|Mul|Equality|Unequality|LessThan|"
    r"StrictLessThan|GreaterThan|StrictGreaterThan",
    re.ASCII,
)
_DECLARED = re.compile(
    r"Symbol\('([suzf]\d+)'(?:, (?:positive|nonnegative|integer|real)=(?:True|False))*\)", re.ASCII
)
"""A symbol with its assumptions, as sympy's `srepr` writes it."""
_EXPRESSION = re.compile(r"[\w\s+\-*/%(),<>=.]*", re.ASCII)
_WORD = re.compile(r"[\w.\-+: ]*", re.ASCII)
_FREE_TEXT = frozenset({"metadata", "guards_code"})
"""Read by people, never executed."""
_TREE_SPECS = frozenset({"in_spec", "out_spec"})
_TREE_TYPES = frozenset(
    {"builtins.tuple", "builtins.list", "builtins.dict", "builtins.NoneType",
     "collections.OrderedDict"}
)  # fmt: skip
"""Containers whose description names no module to import, unlike a `defaultdict`'s."""
_GRAPH = re.compile(r"models/[^/]+\.json")
_TABLE = re.compile(r"data/(weights|constants)/[^/]+_config\.json")
_SAMPLES = re.compile(r"data/sample_inputs/[^/]+\.pt")
_PLAIN = re.compile(
    r"data/weights/weight_\d+|data/constants/tensor_\d+|extra/.+|archive_format|archive_version|"
    r"byteorder|version|\.data/(version|serialization_id)|\.format_version|\.storage_alignment",
    re.ASCII,
)
"""Members that PyTorch takes as bytes or text, unless a table says that one is pickled."""
_EXECUTABLE = ("aotinductor", "custom_obj_", "opaque_obj_", ".so", ".dylib", ".cubin", ".py")


def check_pt2(path: str) -> None:
    """Refuses a file that holds anything but tensors and a graph of known operators.

    Raises:
        BadArtifactError: it does, or it is no archive at all.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_archive(archive)
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, RuntimeError) as error:
        raise BadArtifactError(
            f"{Path(path).name} is not a readable .pt2 archive: {error}", "export the model again"
        ) from error


def check_pickle(data: bytes, where: str) -> None:
    """Refuses a pickle that names anything but tensors; nothing of it is executed.

    Raises:
        BadArtifactError: it does, or it is no pickle.
    """
    try:
        for opcode, argument, _position in pickletools.genops(data):
            if opcode.name in _FORBIDDEN_OPCODES or (
                opcode.name == "GLOBAL" and not _GLOBALS.fullmatch(str(argument))
            ):
                raise _refusal(where, f"a pickle that would call {argument or opcode.name}")
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise _refusal(where, f"a damaged pickle ({error})") from error


def check_model_json(text: str, where: str) -> None:
    """Refuses a graph with operators, sizes or names that are not of the known forms.

    Raises:
        BadArtifactError: it has one; the message shows it.
    """
    try:
        plain: Json = json.loads(text)
        _walk(plain, "", where)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _refusal(where, "a damaged graph") from error


def _check_archive(archive: zipfile.ZipFile) -> None:
    names = archive.namelist()
    # PyTorch's reader finds members whatever their case.
    if len({name.lower() for name in names}) != len(names):
        raise _refusal("the archive", "two members of one name")
    if len({name.partition("/")[0] for name in names}) > 1:
        raise _refusal("the archive", "more than one folder at its top")
    for name in names:
        if any(sign in name.lower() for sign in _EXECUTABLE):
            raise _refusal(name, "compiled code or objects of Python classes")
        _check_member(archive, name, name.partition("/")[2])


def _check_member(archive: zipfile.ZipFile, name: str, inside: str) -> None:
    """By its path, as PyTorch decides: it loads all under `models/` whatever the ending."""
    if _GRAPH.fullmatch(inside):
        check_model_json(_read(archive, name).decode("utf-8"), name)
    elif _TABLE.fullmatch(inside):
        _check_table(archive, name)
    elif _SAMPLES.fullmatch(inside):
        _check_tensor_file(_read(archive, name), name)
    elif not _PLAIN.fullmatch(inside):
        raise _refusal(name, "a member that an exported network does not have")


def _check_table(archive: zipfile.ZipFile, name: str) -> None:
    text = _read(archive, name).decode("utf-8")
    for path_name in _pickled_payloads(json.loads(text)):
        member = str(PurePosixPath(name).parent / path_name)
        _check_tensor_file(_read(archive, member), member)


def _pickled_payloads(config: Json) -> list[str]:
    """Names of the members that PyTorch would unpickle, by the archive's own table."""
    payloads = config.get("config") if isinstance(config, dict) else None
    if not isinstance(payloads, dict):
        raise _refusal("a table of weights", "no list of payloads")
    found = []
    for payload in payloads.values():
        path_name = payload.get("path_name") if isinstance(payload, dict) else None
        if not isinstance(payload, dict) or not isinstance(path_name, str):
            raise _refusal("a table of weights", "a payload without a path")
        if "/" in path_name or path_name.startswith("."):
            raise _refusal("a table of weights", f"a path out of its folder: {path_name}")
        if payload.get("use_pickle") is not False:
            found.append(path_name)
    return found


def _check_tensor_file(data: bytes, where: str) -> None:
    """A file by `torch.save`: an archive whose `data.pkl` names only tensors."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise _refusal(where, "a bare pickle")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            inside = name.partition("/")[2]
            if not _TENSOR_MEMBERS.fullmatch(inside):
                raise _refusal(where, f"{name} beside its tensors")
            if inside == "data.pkl":
                check_pickle(_read(archive, name), where)


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise _refusal(name, "nothing: it is missing") from error
    if name.endswith((".json", ".pkl")) and info.file_size > MAX_TEXT_BYTES:
        raise _refusal(name, f"{info.file_size} bytes of text")
    return archive.read(name)


def _walk(plain: Json, key: str, where: str) -> None:
    if isinstance(plain, dict):
        for name, value in plain.items():
            _check_text(name, "", where)
            if name in _TREE_SPECS and value is not None:
                _check_tree_spec(value, where)
            elif name not in _FREE_TEXT or not isinstance(value, str | list | dict):
                _walk(value, name, where)
            elif name == "metadata" and not isinstance(value, dict):
                raise _refusal(where, "metadata that is no object")
    elif isinstance(plain, list):
        for value in plain:
            _walk(value, key, where)
    elif isinstance(plain, str):
        _check_text(plain, key, where)


def _check_tree_spec(text: Json, where: str) -> None:
    spec: Json = json.loads(text) if isinstance(text, str) else None
    if not (isinstance(spec, list) and len(spec) == 2 and _is_plain_tree(spec[1])):
        raise _refusal(where, f"a tree specification {str(text)[:80]!r}")


def _is_plain_tree(node: Json) -> bool:
    """A leaf or a builtin container, with at most a list of keys as its context."""
    if not isinstance(node, dict):
        return False
    kind, context, children = node.get("type"), node.get("context"), node.get("children_spec")
    if kind is not None and not (isinstance(kind, str) and kind in _TREE_TYPES):
        return False
    keys: Json = json.loads(context) if isinstance(context, str) else context
    if isinstance(keys, list):
        has_plain_keys = all(isinstance(key, str | int) for key in keys)
    else:
        has_plain_keys = keys is None
    return has_plain_keys and isinstance(children, list) and all(map(_is_plain_tree, children))


def _check_text(text: str, key: str, where: str) -> None:
    if key == "target":
        is_known = _TARGET.fullmatch(text) is not None
    elif key == "expr_str" or not _WORD.fullmatch(text):
        text = _DECLARED.sub(r"\1", text)
        words = re.findall(r"[A-Za-z_]\w*", text, re.ASCII)
        is_known = _EXPRESSION.fullmatch(text) is not None
        is_known = is_known and all(_SYMBOL.fullmatch(word) for word in words)
    else:
        is_known = True
    if not is_known:
        raise _refusal(where, f"a graph with {key or 'name'} {text[:80]!r}")


def _refusal(where: str, what: str) -> BadArtifactError:
    return BadArtifactError(
        f"{where} holds {what}, which could run code of whoever made the file",
        "if you trust its maker, run again with --trust; otherwise export the model yourself",
    )
