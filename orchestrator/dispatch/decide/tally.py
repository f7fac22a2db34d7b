"""Progress of a sweep: the outcome of each (cell, repeat), read from its rows."""

import math
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Self

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.foundation.vocabulary import ErrorKind, Status
from fleetrank.orchestrator.dispatch.decide.lane import RepeatKey
from fleetrank.orchestrator.dispatch.decide.retry import condemns_cell
from fleetrank.orchestrator.identity import Plan
from fleetrank.orchestrator.keys import RowKey

_NOTHING_TRIED = frozenset(
    {ErrorKind.EXPORT_FAILED, ErrorKind.VERIFICATION_FAILED, ErrorKind.DEVICE_LOST}
)


class Standing(Enum):
    """The outcome of the attempts at one repeat so far."""

    OK = "ok"
    FAILED = "failed"
    """Permanently: another attempt would fail the same way."""
    MAY_RETRY = "may_retry"
    """Only transient failures so far; a resumed sweep tries again."""


class Tally:
    """Counts repeats by outcome: one pass over the journal, then row by row."""

    def __init__(self) -> None:
        self._standing: dict[RepeatKey, Standing] = {}
        self._next_attempt: dict[RepeatKey, int] = {}
        self._measured: set[str] = set()
        self._again: set[RepeatKey] = set()
        self._latencies_ns: dict[RepeatKey, float] = {}
        self._verdicts: dict[str, Failure] = {}

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, object]]) -> Self:
        """Returns the tally of a journal."""
        tally = cls()
        for row in rows:
            tally.observe(row)
        return tally

    def observe(self, row: Mapping[str, object]) -> None:
        """Counts one stored row."""
        is_ok = row.get("status") == Status.OK
        row_key = RowKey.of(row)
        failure = None if is_ok else _failure_of(row)
        key = (row_key.cell_key, row_key.repeat)
        self.count(key, row_key.attempt, failure)
        if row.get("stopping_rule") is not None and isinstance(row["latency_p50_ns"], float):
            self.time(key, row["latency_p50_ns"])

    def time(self, key: RepeatKey, latency_ns: float) -> None:
        """Keeps the latency of a repeat, for the decisions of a plan until decided."""
        self._latencies_ns[key] = latency_ns

    def latency_ns(self, key: RepeatKey) -> float:
        """The latency of a repeat, in a plan until decided; NaN if it has none."""
        return self._latencies_ns.get(key, math.nan)

    def count(self, key: RepeatKey, attempt: int, failure: Failure | None) -> None:
        """Counts one attempt; `failure` is `None` for a valid measurement."""
        self._next_attempt[key] = max(self._next_attempt.get(key, 0), attempt + 1)
        if failure is None:
            self._standing[key] = Standing.OK
            self._measured.add(key[0])
            self._again.discard(key)
        elif self._standing.get(key) is not Standing.OK:
            # Without a file or a device nothing was measured. At a resume the disk may have room,
            # the file may be trusted, or the phone may accept this computer.
            may_pass = failure.is_transient or failure.kind in _NOTHING_TRIED
            self._standing[key] = Standing.MAY_RETRY if may_pass else Standing.FAILED
            if condemns_cell(failure):
                self._verdicts.setdefault(key[0], _verdict(key, failure))

    def withdraw(self, key: RepeatKey, failure: Failure) -> None:
        """Counts a repeat as failed whose measurement could not be stored."""
        self._standing.pop(key, None)
        self.count(key, self.next_attempt(key) - 1, failure)

    def reopen(self, cell_keys: Collection[str]) -> int:
        """Lets the failed repeats of these cells be tried again; returns how many there are."""
        wanted = set(cell_keys)
        failed = [
            key
            for key, standing in self._standing.items()
            if key[0] in wanted and standing is not Standing.OK
        ]
        self._standing.update(dict.fromkeys(failed, Standing.MAY_RETRY))
        for cell_key in wanted:
            self._verdicts.pop(cell_key, None)
        return len(failed)

    def measure_again(self, keys: Collection[RepeatKey]) -> None:
        """Opens measured repeats for a further attempt; without one, the earlier still counts."""
        self._again.update(keys)

    def verdict(self, cell_key: str) -> Failure | None:
        """Returns why no further repeat of a cell is tried; `None` if it may be tried.

        A cell with one valid repeat is never given up: a later failure counts for its own repeat
            only.
        """
        return None if cell_key in self._measured else self._verdicts.get(cell_key)

    def is_finished(self, key: RepeatKey) -> bool:
        """Whether the repeat needs no further attempt, now or after a resume."""
        standing = self._standing.get(key, Standing.MAY_RETRY)
        return standing is not Standing.MAY_RETRY and key not in self._again

    def is_measured(self, key: RepeatKey) -> bool:
        """Whether the repeat has a valid measurement, and is not to be measured again."""
        return self._standing.get(key) is Standing.OK and key not in self._again

    def next_attempt(self, key: RepeatKey) -> int:
        """Returns the number of the next attempt; a number is never used twice."""
        return self._next_attempt.get(key, 0)

    @property
    def n_ok(self) -> int:
        """Repeats with a valid measurement."""
        return self._count(Standing.OK)

    @property
    def n_failed(self) -> int:
        """Repeats that were tried and have no valid measurement."""
        return len(self._standing) - self.n_ok

    def n_untried(self, plan: Plan) -> int:
        """Repeats of a plan that need to be tried in any case, and were not."""
        keys = ((one.cell_key, index) for one in plan.cells for index in range(plan.least_repeats))
        return sum(key not in self._standing for key in keys)

    @property
    def n_finished(self) -> int:
        """Repeats that a resume would skip."""
        return len(self._standing) - self._count(Standing.MAY_RETRY)

    def _count(self, wanted: Standing) -> int:
        return sum(standing is wanted for standing in self._standing.values())


def _failure_of(row: Mapping[str, object]) -> Failure:
    """Returns the failure that a row stores; a kind of another version condemns no cell."""
    kind = row.get("error_kind")
    return Failure(
        kind=ErrorKind(str(kind)) if kind in set(ErrorKind) else ErrorKind.INTERNAL,
        message=str(row.get("error_message")),
        remedy=str(row.get("error_remedy")),
        is_transient=row.get("error_is_transient") is not False,
    )


def _verdict(key: RepeatKey, failure: Failure) -> Failure:
    return Failure(
        kind=failure.kind,
        message=f"not tried: repeat {key[1] + 1} failed with {failure.kind}: {failure.message}",
        remedy=failure.remedy,
        is_transient=False,
    )
