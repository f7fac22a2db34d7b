"""Rows that are published without a journal: a part, and the list that names it."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from fleetrank.analysis.stored.part_list import (
    MEASUREMENTS,
    Part,
    PartList,
    Stretch,
    parts_folder,
    read_list,
)
from fleetrank.orchestrator.store.journal import Entry, parse_line
from fleetrank.orchestrator.store.parts import frames_of, write_list
from fleetrank.orchestrator.store.results import ResultStore

_NOTHING = hashlib.sha256(b"").hexdigest()


def part_of(results: Path, sweep: str, number: int = 0) -> Path:
    """Where a part of a sweep's measurements lies, also before it is written."""
    return parts_folder(results, sweep) / f"part-{number:012d}.parquet"


def write_part(frame: pl.DataFrame, path: Path) -> None:
    """Writes a part, new or in place of an old one, and its line of the list."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    results, sweep = path.parents[2], path.parent.name.partition("=")[2]
    found = read_list(results, sweep)
    made = Part(
        table=MEASUREMENTS,
        start=int(path.stem.removeprefix("part-")),
        n_rows=frame.height,
        sha256=hashlib.sha256(buffer.getvalue()).hexdigest(),
        before_sha256=None,
    )
    is_there = any(one.start == made.start for one in found.parts(MEASUREMENTS))
    stretches = [
        replace(one, parts=tuple(made if _is_same(part, made) else part for part in one.parts))
        for one in found.stretches
    ]
    if not is_there:
        stretches.append(
            Stretch(
                start=found.end, end=found.end, sha256=_NOTHING, n_lines=0, n_bad=0, parts=(made,)
            )
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())
    write_list(results, replace(found, stretches=tuple(stretches)))


def _is_same(one: Part, other: Part) -> bool:
    return (one.table, one.start) == (other.table, other.start)


def published_rows(results: Path, sweep: str) -> list[dict[str, object]]:
    """The published measurements of a sweep, in the order of its journal."""
    return [row for frame in frames_of(results, sweep) for row in frame.iter_rows(named=True)]


def forget_rows(store: ResultStore, sweep: str, is_gone: Callable[[Entry], bool]) -> None:
    """Takes rows out of a sweep, as if they had never been measured."""
    journal = store.open_journal(sweep)
    lines = [line for line in journal.lines() if not is_gone(parse_line(line, sweep))]
    journal.packed_path.unlink(missing_ok=True)
    journal.path.write_bytes(b"".join(lines))
    write_list(store.root, PartList(sweep_id=sweep))
    store.publish(sweep)
