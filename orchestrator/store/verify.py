"""Are the stored rows whole? Summaries are held against samples, parts against the journal."""

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.columns import ROW_KEY
from analysis.counting import count_of
from analysis.part_files import PARTS, damage_error
from orchestrator.errors import StoreError
from orchestrator.store.parts import read_part
from orchestrator.store.results import ResultStore
from orchestrator.translate import summarise

_TOLERANCE = 1e-9
"""Sums in another order differ by some 1e-16; an edited figure by far more."""

KEEP = "the journal is damaged, the Parquet parts are whole: keep them, delete nothing"
_KEEP_BOTH = (
    "the journal lacks rows too: delete nothing, keep a copy of journal and parts, and use the "
    "parts that can be read"
)
_READ_PAST = (
    "leave the line in the journal: it is read past, and `fleetrank sweep resume` measures again "
    "what it said"
)
_COMPACT = "`fleetrank results compact` publishes what is in the journal only"
_WRITTEN_SO = (
    "a row that was written wrong stays so: `fleetrank results exclude` leaves it out of every "
    "figure, and a new sweep measures its cell again"
)

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something wrong with one sweep's stored rows, and what to do: it says which side to keep."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """What the parts of a sweep hold; `wrong` are rows whose samples contradict them."""

    keys: dict[Key, Path]
    wrong: dict[Key, list[str]]
    twice: list[tuple[str, Path]]
    damaged: list[Path]


def find_faults(store: ResultStore, sweep_id: str) -> list[Fault]:
    """Everything that is wrong with one sweep's stored rows; empty is good."""
    published = _read_parts(store.parts_folder(sweep_id))
    journal = store.open_journal(sweep_id)
    faults = []
    lost, wrong_in_journal = set(published.keys), set[Key]()
    for row in journal.rows():
        key = _key(row)
        lost.discard(key)
        if key not in published.keys and not published.damaged:
            faults.append(Fault(text=f"{_name(row)}: in the journal only", remedy=_COMPACT))
        if key in published.wrong and any(wrong_summaries(row)):
            wrong_in_journal.add(key)
    keep = _KEEP_BOTH if published.damaged else KEEP
    for problem in journal.problems():
        text = f"journal, line {problem.line}: {problem.reason}"
        faults.append(Fault(text=text, remedy=keep if lost else _READ_PAST))
    if lost:
        text = f"journal: {count_of(len(lost), 'row')} of the Parquet parts not in it"
        faults.append(Fault(text=text, remedy=keep))
    return [*faults, *_faults_of_parts(published, wrong_in_journal, is_journal_whole=not lost)]


def _read_parts(folder: Path) -> _Published:
    published = _Published(keys={}, wrong={}, twice=[], damaged=[])
    for path in sorted(folder.glob(PARTS)):
        try:
            rows = list(read_part(path))
        except StoreError:
            published.damaged.append(path)
            continue
        for row in rows:
            key = _key(row)
            if key in published.keys:
                published.twice.append((_name(row), path))
            published.keys[key] = path
            if wrong := list(wrong_summaries(row)):
                published.wrong[key] = wrong
    return published


def _faults_of_parts(
    published: _Published, wrong_in_journal: Container[Key], *, is_journal_whole: bool
) -> Iterator[Fault]:
    """A part is only ever given up for a journal that has its rows."""

    def remedy(path: Path) -> str:
        return damage_error(path).remedy if is_journal_whole else _KEEP_BOTH

    for path in published.damaged:
        yield Fault(text=f"{path} is damaged", remedy=remedy(path))
    for name, path in published.twice:
        yield Fault(text=f"{name}: stored twice, again in {path}", remedy=remedy(path))
    for key, texts in published.wrong.items():
        path = published.keys[key]
        was_written_so = key in wrong_in_journal
        for text in texts:
            yield Fault(text=text, remedy=_WRITTEN_SO if was_written_so else remedy(path))


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


def _key(row: Mapping[str, object]) -> Key:
    return tuple(row[name] for name in ROW_KEY)


def _name(row: Mapping[str, object]) -> str:
    return f"cell {row['cell_key']}, repeat {row['repeat']}, attempt {row['attempt']}"
