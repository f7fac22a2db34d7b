"""Files of one export beside an index with their sha256; foreign files are never replaced."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fleetrank.analysis.errors import AnalysisError
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.files import make_folder, replace_file
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.strict_json import json_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One entry of the index; without a file it has the reason.

    Attributes:
        request: a table and its options, as `report show` takes them, or the name of a figure.
        title, notes, explanation: of a table.
    """

    request: str
    file: str | None = None
    sha256: str | None = None
    title: str | None = None
    notes: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()
    missing_because: str | None = None


def write_indexed(
    index: Path, contents: Iterable[tuple[ExportedFile, bytes]], *, may_overwrite: bool = False
) -> list[ExportedFile]:
    """Writes files into the folder of their index, then the index; after a refusal none.

    The index keeps the entries of earlier files that are not written again. Files are written under
    a temporary name and renamed: a link is replaced, never followed.

    Args:
        index: a JSON file in the folder, which is made if it is missing.
        contents: entries without checksums, each with what its file holds.
        may_overwrite: also replace files that no export wrote.

    Raises:
        AnalysisError: a file that no export wrote, or that changed since, would be replaced.
        StorageError: the folder cannot be written.
    """
    known, found, written = _written_before(index), [], dict[str, bytes]()
    for entry, data in contents:
        if entry.file is not None:
            written[entry.file] = data
            entry = replace(entry, sha256=hashlib.sha256(data).hexdigest())  # noqa: PLW2901
        found.append(entry)
    if not may_overwrite:
        _refuse_others(index, list(written), known)
    make_folder(index.parent)
    for name, data in written.items():
        replace_file(index.parent / name, data)
    kept = [one for name, one in known.items() if name not in written]
    text = json_text({_ENTRIES: [*map(asdict, found), *kept]}, indent=2)
    replace_file(index, f"{text}\n".encode())
    return found


_ENTRIES = "files"


def _refuse_others(index: Path, names: Sequence[str], ours: Mapping[str, Any]) -> None:
    folder = index.parent

    def is_free(name: str) -> bool:
        path, entry = folder / name, ours.get(name)
        if not os.path.lexists(path):
            return True
        if entry is None or path.is_symlink() or not path.is_file():
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == str(entry["sha256"])

    in_the_way = [name for name in names if not is_free(name)]
    if os.path.lexists(index) and not ours:
        in_the_way.append(index.name)
    if in_the_way:
        raise AnalysisError(
            f"{folder} contains files that no export wrote or that changed since: "
            f"{', '.join(in_the_way)}",
            "choose another folder, or replace the files with `force=true`",
        )


def _written_before(index: Path) -> dict[str, Any]:
    """File name to its entry; empty without an index from fleetrank."""
    try:
        entries: Any = read_json_object(index)[_ENTRIES]
        return {one["file"]: one for one in entries if one["file"] and one["sha256"]}
    except (BadFileError, KeyError, TypeError):
        return {}
