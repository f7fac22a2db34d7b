"""The notes that a person reads below a table: three sentences; the others are explanation."""

import re
from collections.abc import Sequence
from dataclasses import replace

from fleetrank.analysis.tables.table import Table

MAX_SENTENCES = 3
_END = re.compile(r"[.!?](?=\s|$)")


def sentences_in(notes: Sequence[str]) -> int:
    """How many sentences the notes have."""
    return sum(len(_END.findall(note)) for note in notes)


def split_notes(notes: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The notes to show, of at most three sentences together, and the others, both in order.

    The first note counts most: it marks data that is not real, or how many models and platforms
    there are. The last one is next: it is about this table only. The others follow in order.
    """
    first_and_last = dict.fromkeys((0, len(notes) - 1)) if notes else {}
    kept: set[int] = set()
    for at in dict.fromkeys((*first_and_last, *range(len(notes)))):
        if not kept or sentences_in([notes[one] for one in (*kept, at)]) <= MAX_SENTENCES:
            kept.add(at)
    return (
        tuple(note for at, note in enumerate(notes) if at in kept),
        tuple(note for at, note in enumerate(notes) if at not in kept),
    )


def with_brief_notes(table: Table) -> Table:
    """The table with notes of at most three sentences; the others begin its explanation."""
    shown, others = split_notes(table.notes)
    return replace(table, notes=shown, explanation=(*others, *table.explanation))
