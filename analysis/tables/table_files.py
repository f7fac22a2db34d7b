"""Writes every table as a file in one folder, with an index of the files."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.formats import render
from fleetrank.analysis.tables.table_specs import REQUESTS, TableRequest
from fleetrank.analysis.tables.tables import session_table
from fleetrank.foundation.codec import json_text
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.files import make_folder, replace_file
from fleetrank.foundation.plain_data import read_json_object

SUFFIXES: Mapping[str, str] = MappingProxyType({"csv": "csv", "latex": "tex", "markdown": "md"})
"""Format to the suffix of its files."""


def index_name(form: str) -> str:
    """The index of the written files: names, sha256, titles, notes, missing tables with reasons.

    Each format has its own index, so several formats can share a folder.
    """
    return f"fleetrank-tables-{form}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One table of the index; without a file it has the reason.

    Attributes:
        request: the table and its options, as `report show` takes them.
    """

    request: str
    file: str | None = None
    sha256: str | None = None
    title: str | None = None
    notes: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()
    missing_because: str | None = None


def export_tables(
    frame: pl.LazyFrame,
    selection: Selection,
    folder: Path,
    *,
    form: str,
    may_overwrite: bool = False,
    results: Path | None = None,
) -> list[TableFile]:
    """Writes all tables of a scan into a folder; after an error about files none is written.

    Each part is written with its default settings: `table_specs.REQUESTS`.

    An existing file is replaced only if an earlier export wrote it and it did not change since.
    Files are written under a temporary name and renamed: a link is replaced, never followed.

    Args:
        frame: a scan of `load.load_measurements` with every origin.
        selection: what to look at.
        folder: created if it is missing.
        form: one of `SUFFIXES`.
        may_overwrite: also replace files that no export wrote.
        results: the folder that was scanned; tables of side tables are empty without it.

    Raises:
        AnalysisError: the format does not exist, or a foreign file would be replaced.
        StorageError: the folder cannot be written.
        NoDataError: no row matches the selection.
    """
    if form not in SUFFIXES:
        raise AnalysisError(f"no format '{form}'", f"there are {', '.join(SUFFIXES)}")
    session = Session(frame, selection, results=results)
    session_table("latency", session)  # a selection without data is an error: no folder is created
    contents = [_content(request, session, form) for request in REQUESTS]
    entries = [entry for entry, _ in contents]
    written = {entry.file: data for entry, data in contents if entry.file}
    if not may_overwrite:
        _refuse_others(folder, index_name(form), list(written))
    make_folder(folder)
    for name, data in written.items():
        replace_file(folder / name, data)
    index = {"tables": [asdict(entry) for entry in entries]}
    replace_file(folder / index_name(form), (json_text(index, indent=2) + "\n").encode())
    return entries


def _content(request: TableRequest, session: Session, form: str) -> tuple[TableFile, bytes]:
    entry = TableFile(request=request.words)
    try:
        table = session_table(request.name, session.asked(request.selection(session.selection)))
    except AnalysisError as error:
        # With one device the choice of a proxy is not possible; the other tables are still written.
        return replace(entry, missing_because=str(error)), b""
    data = render(table, form).encode()
    found = replace(
        entry,
        file=f"{request.file_stem}.{SUFFIXES[form]}",
        sha256=hashlib.sha256(data).hexdigest(),
        title=table.title,
        notes=table.notes,
        explanation=table.explanation,
    )
    return found, data


def _refuse_others(folder: Path, index: str, names: Sequence[str]) -> None:
    ours = _written_before(folder / index)
    in_the_way = [name for name in names if not _is_ours(folder / name, ours.get(name))]
    if os.path.lexists(folder / index) and not ours:
        in_the_way.append(index)
    if in_the_way:
        raise AnalysisError(
            f"{folder} contains files that no export wrote or that changed since: "
            f"{', '.join(in_the_way)}",
            "choose another folder, or replace the files with `force=true`",
        )


def _written_before(index: Path) -> dict[str, str]:
    """File name to sha256; empty without an index from fleetrank."""
    try:
        entries: Any = read_json_object(index)["tables"]
        return {str(entry["file"]): str(entry["sha256"]) for entry in entries if entry["file"]}
    except (BadFileError, KeyError, TypeError):
        return {}


def _is_ours(path: Path, sha256: str | None) -> bool:
    if not os.path.lexists(path):
        return True
    if path.is_symlink() or not path.is_file():
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
