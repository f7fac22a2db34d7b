"""Are the stored rows whole? Summaries are held against samples, parts against the journal."""

import math
from collections.abc import Iterator, Mapping

from analysis.columns import ROW_KEY
from orchestrator.store.parts import read_rows
from orchestrator.store.results import ResultStore
from orchestrator.translate import summarise

_TOLERANCE = 1e-9
"""Sums in another order differ by some 1e-16; an edited figure by far more."""


def find_faults(store: ResultStore, sweep_id: str) -> list[str]:
    """Everything that is wrong with one sweep's stored rows, one sentence each; empty is good."""
    faults = [
        f"journal, line {problem.line}: {problem.reason} (kept, and read past)"
        for problem in store.open_journal(sweep_id).problems()
    ]
    published = set()
    for row in read_rows(store.parts_folder(sweep_id)):
        key = tuple(row[name] for name in ROW_KEY)
        if key in published:
            faults.append(f"{_name(row)}: stored twice")
        published.add(key)
        faults += wrong_summaries(row)
    faults += [
        f"{_name(row)}: in the journal, not in Parquet; `fleetrank results compact` publishes it"
        for row in store.open_journal(sweep_id).rows()
        if tuple(row[name] for name in ROW_KEY) not in published
    ]
    return faults


def wrong_summaries(row: Mapping[str, object]) -> Iterator[str]:
    """The summaries of a row that its own samples contradict."""
    samples = row["samples_ns"]
    if not isinstance(samples, list):
        return
    for name, expected in summarise(samples).items():
        stored = row[name]
        if not _is_equal(stored, expected):
            yield f"{_name(row)}: {name} is {stored}, its samples give {expected}"


def _is_equal(stored: object, expected: float | None) -> bool:
    if expected is None or not isinstance(stored, int | float):
        return stored is expected
    return math.isclose(stored, expected, rel_tol=_TOLERANCE)


def _name(row: Mapping[str, object]) -> str:
    return f"cell {row['cell_key']}, repeat {row['repeat']}, attempt {row['attempt']}"
