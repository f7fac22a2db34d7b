"""Accepts an untrusted `.pt2`: PyTorch gets only a copy of the checked content.

`torch.export.load` and the module it returns run code from the file in five ways: unpickling
weights, constants and sample inputs; loading compiled libraries; resolving names to functions;
evaluating symbolic sizes; executing guards and generated source. The copy contains tensors as raw
bytes, tables and a program written from checked values, and sample inputs whose one pickle names
only tensors. The archive inside the archive is rewritten too.

Source: torch 2.13, torch/export/pt2_archive/_package.py.
"""

import io
import os
import pickletools
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO

from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.runtimes.pt2_archive import add_member, check_layout
from fleetrank.device_agents.runtimes.pt2_forms import UnfitError
from fleetrank.device_agents.runtimes.pt2_program import checked_program, checked_table
from fleetrank.foundation.errors import failing_as

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
