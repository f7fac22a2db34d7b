"""Files of one export beside an index with their sha256; foreign files are never replaced."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetrank.analysis.errors import AnalysisError
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.files import make_folder, replace_file
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.strict_json import json_text

_ENTRIES = "files"


def write_indexed(
    index: Path,
    written: Mapping[str, bytes],
    entries: Iterable[Mapping[str, object]],
    *,
    may_overwrite: bool = False,
) -> None:
    """Writes files into the folder of their index, then the index; after a refusal none.

    The index keeps the entries of earlier files that are not written again.

    Files are written under a temporary name and renamed: a link is replaced, never followed.

    Args:
        index: a JSON file in the folder, which is made if it is missing.
        written: contents by name.
        entries: of the index; each has a `file`, which may be `None`, and its `sha256`.
        may_overwrite: also replace files that no export wrote.

    Raises:
        AnalysisError: a file that no export wrote, or that changed since, would be replaced.
        StorageError: the folder cannot be written.
    """
    folder, new = index.parent, [*entries]
    kept = [one for one in _entries(index) if one["file"] not in {each["file"] for each in new}]
    if not may_overwrite:
        _refuse_others(index, list(written))
    make_folder(folder)
    for name, data in written.items():
        replace_file(folder / name, data)
    text = json_text({_ENTRIES: [*new, *kept]}, indent=2)
    replace_file(index, f"{text}\n".encode())


def _refuse_others(index: Path, names: Sequence[str]) -> None:
    folder, ours = index.parent, _written_before(index)
    in_the_way = [name for name in names if not _is_ours(folder / name, ours.get(name))]
    if os.path.lexists(index) and not ours:
        in_the_way.append(index.name)
    if in_the_way:
        raise AnalysisError(
            f"{folder} contains files that no export wrote or that changed since: "
            f"{', '.join(in_the_way)}",
            "choose another folder, or replace the files with `force=true`",
        )


def _written_before(index: Path) -> dict[str, str]:
    return {str(entry["file"]): str(entry["sha256"]) for entry in _entries(index)}


def _entries(index: Path) -> list[dict[str, Any]]:
    """Those with a file; empty without an index from fleetrank."""
    try:
        entries: Any = read_json_object(index)[_ENTRIES]
        return [entry for entry in entries if entry["file"] and entry["sha256"]]
    except (BadFileError, KeyError, TypeError):
        return []


def _is_ours(path: Path, sha256: str | None) -> bool:
    if not os.path.lexists(path):
        return True
    if path.is_symlink() or not path.is_file():
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
