"""Lets an untrusted `.pt2` in: a copy of what was checked, which alone is given to PyTorch.

`torch.export.load` and the module it returns run code from the file in five ways: unpickling
weights, constants and sample inputs; loading compiled libraries; resolving names to functions;
evaluating symbolic sizes; executing guards and generated source. The copy holds tensors as raw
bytes, tables and a program written from checked values, and nothing else. No pickle is in it.

Source: torch 2.13, torch/export/pt2_archive/_package.py.
"""

import io
import os
import re
import zipfile
from pathlib import Path

from device_agents.errors import BadArtifactError
from device_agents.runtimes.pt2_archive import add_member, check_layout
from device_agents.runtimes.pt2_forms import UnfitError
from device_agents.runtimes.pt2_program import checked_program, checked_table

MAX_TEXT_BYTES = 64 * 1024 * 1024
"""Of one JSON inside the archive; the graph of a large network has 1 MB."""

MAX_NOTE_BYTES = 64
"""Of a version or an order of bytes."""

_ROOT = "model"
"""The one folder at the top of the copy; PyTorch names it after the file."""
_PROGRAM = "models/model.json"
_SAMPLES = "data/sample_inputs/model.pt"
_TABLES = re.compile(r"data/(weights|constants)/model_\1_config\.json")
_PAYLOADS = re.compile(r"data/weights/weight_\d+|data/constants/tensor_\d+", re.ASCII)
_NOTES = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)|"
    r"\.format_version|\.storage_alignment"
)
_NOTE = re.compile(rb"\d{1,40}\n?|little|big|pt2")
"""What a note says: a version, a number, an order of bytes, the format's name."""
_EXTRA = "extra/"


def copy_checked(source: str, target: Path) -> None:
    """Writes an archive of what was read from another and found to be a network.

    The file is synced, so that no write to the disk falls into the measurement.

    Raises:
        BadArtifactError: the source holds anything else, or is no archive.
    """
    name = Path(source).name
    try:
        with Path(source).open("rb") as file, target.open("xb") as copy:
            check_layout(file)
            with zipfile.ZipFile(file) as old, zipfile.ZipFile(copy, "w") as new:
                _copy_members(old, new)
            copy.flush()
            os.fsync(copy.fileno())
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
        raise BadArtifactError(
            f"{name} is not a readable .pt2 archive: {error}", "export the model again"
        ) from error


def _copy_members(old: zipfile.ZipFile, new: zipfile.ZipFile) -> None:
    roots = {member.filename.partition("/")[0] for member in old.infolist()}
    if len(roots) != 1:
        raise _refusal("the archive", "more or less than one folder at its top")
    for member in old.infolist():
        inside = member.filename.partition("/")[2]
        # Not needed to run the network: a pickle, and files beside it.
        if inside == _SAMPLES or inside.startswith(_EXTRA):
            continue
        place = f"{_ROOT}/{inside}"
        if _PAYLOADS.fullmatch(inside):
            with old.open(member) as payload:
                add_member(new, place, payload, member.file_size)
        else:
            text = _checked_text(old, member, inside)
            add_member(new, place, io.BytesIO(text), len(text))
    # PyTorch takes an empty file for a program without sample inputs.
    add_member(new, f"{_ROOT}/{_SAMPLES}", io.BytesIO(), 0)


def _checked_text(archive: zipfile.ZipFile, member: zipfile.ZipInfo, inside: str) -> bytes:
    """What is written in place of a member, by its path, as PyTorch decides."""
    is_note = _NOTES.fullmatch(inside) is not None
    if not (is_note or inside == _PROGRAM or _TABLES.fullmatch(inside)):
        raise _refusal(member.filename, "what an exported network does not have")
    if member.file_size > (MAX_NOTE_BYTES if is_note else MAX_TEXT_BYTES):
        raise _refusal(member.filename, f"{member.file_size} bytes of text")
    data = archive.read(member)
    if is_note:
        if not _NOTE.fullmatch(data):
            raise _refusal(member.filename, f"{data[:80]!r}")
        return data
    try:
        return checked_program(data) if inside == _PROGRAM else checked_table(data)
    except UnfitError as error:
        raise _refusal(member.filename, f"a graph with {error}") from error


def _refusal(where: str, what: str) -> BadArtifactError:
    return BadArtifactError(
        f"{where} holds {what}, which could run code of whoever made the file",
        "if you trust its maker, run again with --trust; otherwise export the model yourself",
    )
