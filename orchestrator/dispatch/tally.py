"""How far a sweep is: what each (cell, repeat) has come to, read from its rows."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Self

from device_agents.vocabulary import ErrorKind, Status

RepeatKey = tuple[str, int]
"""(cell key, 0-based repeat)."""

_NO_FILE = frozenset({ErrorKind.EXPORT_FAILED, ErrorKind.VERIFICATION_FAILED})


class Standing(Enum):
    """What the attempts at one repeat have come to."""

    OK = "ok"
    FAILED = "failed"
    """For good: another attempt would fail the same way."""
    MAY_RETRY = "may_retry"
    """So far only failures that may pass; a resumed sweep tries again."""


class Tally:
    """Counts repeats by how they stand; one pass over the journal, then row by row."""

    def __init__(self) -> None:
        self._standing: dict[RepeatKey, Standing] = {}
        self._next_attempt: dict[RepeatKey, int] = {}

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, object]]) -> Self:
        """The tally of a journal."""
        tally = cls()
        for row in rows:
            tally.observe(row)
        return tally

    def observe(self, row: Mapping[str, object]) -> None:
        """Takes one stored row into account."""
        key = str(row["cell_key"]), int(str(row["repeat"]))
        attempt = int(str(row["attempt"]))
        self._next_attempt[key] = max(self._next_attempt.get(key, 0), attempt + 1)
        if self._standing.get(key) is not Standing.OK:
            self._standing[key] = _standing(row)

    def is_finished(self, key: RepeatKey) -> bool:
        """Whether no further attempt is due, now or after a resume."""
        return self._standing.get(key, Standing.MAY_RETRY) is not Standing.MAY_RETRY

    def next_attempt(self, key: RepeatKey) -> int:
        """The number of the next attempt; attempts are never numbered twice."""
        return self._next_attempt.get(key, 0)

    @property
    def n_ok(self) -> int:
        """Repeats with a valid measurement."""
        return self._count(Standing.OK)

    @property
    def n_failed(self) -> int:
        """Repeats that were tried and have no valid measurement."""
        return len(self._standing) - self.n_ok

    @property
    def n_finished(self) -> int:
        """Repeats that a resume would pass over."""
        return len(self._standing) - self._count(Standing.MAY_RETRY)

    def _count(self, wanted: Standing) -> int:
        return sum(standing is wanted for standing in self._standing.values())


def _standing(row: Mapping[str, object]) -> Standing:
    if row.get("status") == Status.OK:
        return Standing.OK
    # Without a file nothing was measured: by then the disk may have room, or the file be trusted.
    may_pass = row.get("error_is_transient") is not False or row.get("error_kind") in _NO_FILE
    return Standing.MAY_RETRY if may_pass else Standing.FAILED
