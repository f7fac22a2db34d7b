"""The progress of a sweep, read from its record and journal; works while it runs."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fleetrank.analysis.stored.sweep_record import SweepRecord, SweepState, shown_tags
from fleetrank.foundation.inputs import IMAGE
from fleetrank.foundation.lease import is_locked
from fleetrank.foundation.vocabulary import NS_PER_MS
from fleetrank.orchestrator.dispatch.decide.retry import RepeatKey
from fleetrank.orchestrator.dispatch.decide.state import Tally
from fleetrank.orchestrator.identity import RowKey
from fleetrank.orchestrator.progress import read_progress
from fleetrank.orchestrator.store.results import ResultStore

_MAX_FAILURES = 20
"""The newest failures shown; the results hold all of them."""
_LATEST = 30
"""Number of newest attempts that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """What `fleetrank sweep status` shows.

    Attributes:
        state: `running finished interrupted failed`, or `stopped`: its driver died, or a device
            was abandoned.
        seconds_left: from the pace of the current run; `None` when it does not run.
        devices: each device's work and count in the current run; empty if it does not run.
        n_overcome: failed tries of repeats that another try measured.
        failures: the last error of repeats without a valid measurement, and the number of tries;
            only the newest, for display.
        tags, note: what a person says about the sweep.
        latest: its last attempts, newest first.
    """

    sweep_id: str
    state: str
    started_utc: str | None
    finished_utc: str | None
    n_repeats: int
    n_ok: int
    n_failed: int
    n_left: int
    seconds_left: float | None
    devices: tuple[Mapping[str, object], ...]
    n_overcome: int
    failures: tuple[Mapping[str, object], ...]
    tags: tuple[str, ...] = ()
    note: str | None = None
    latest: tuple[Mapping[str, object], ...] = ()


class SweepCount:
    """Counts the rows of a sweep; processes them one by one, so a journal is read only once."""

    def __init__(self) -> None:
        """Starts with no rows."""
        self.latest: deque[Mapping[str, object]] = deque(maxlen=_LATEST)
        self._tally = Tally()
        self._failures: dict[RepeatKey, Mapping[str, object]] = {}
        self._n_tries_failed: Counter[RepeatKey] = Counter()
        self._started: list[datetime] = []

    def observe(self, row: Mapping[str, object]) -> None:
        """Counts one row of the journal."""
        self._tally.observe(row)
        row_key = RowKey.of(row)
        key = row_key.cell_key, row_key.repeat
        is_failure = row.get("error_kind") is not None
        self._n_tries_failed[key] += is_failure
        # Removed and inserted again, so that the newest is last.
        self._failures.pop(key, None)
        if is_failure and not self._tally.is_measured(key):
            self._failures[key] = {**_failure(row), "tries": self._n_tries_failed[key]}
        if isinstance(stamp := row.get("started_utc"), str):
            self._started.append(datetime.fromisoformat(stamp))
        self.latest.appendleft(_attempt(row))

    def status(self, record: SweepRecord, *, is_running: bool) -> SweepStatus:
        """The progress of this record's sweep, without the current work of devices."""
        n_repeats = 0 if record.plan is None else record.plan.n_cells * record.plan.repeats
        n_left = max(0, n_repeats - self._tally.n_ok - self._tally.n_failed)
        started = _of_run(self._started, record)
        return SweepStatus(
            sweep_id=record.sweep_id,
            state=state_of(record, is_running=is_running),
            started_utc=record.started_utc,
            finished_utc=record.finished_utc,
            n_repeats=n_repeats,
            n_ok=self._tally.n_ok,
            n_failed=self._tally.n_failed,
            n_left=n_left,
            seconds_left=_seconds_left(started, n_left) if is_running else None,
            devices=(),
            n_overcome=self._n_tries_failed.total()
            - sum(self._n_tries_failed[key] for key in self._failures),
            failures=tuple(self._failures.values())[-_MAX_FAILURES:],
            latest=tuple(self.latest),
        )


def with_tags(status: SweepStatus, store: ResultStore) -> SweepStatus:
    """The status with the tags and the note of its sweep."""
    found = shown_tags(store.root, status.sweep_id)
    return replace(status, tags=found.tags, note=found.note)


def read_status(store: ResultStore, sweep_id: str) -> SweepStatus:
    """Reads record and journal of a sweep; changes nothing.

    Raises:
        UsageError: the sweep does not exist.
        StoreError: its record is damaged.
    """
    record = store.sweep_record(sweep_id)
    count = SweepCount()
    for row in store.open_journal(sweep_id).rows():
        count.observe(row)
    runs = is_running(store, sweep_id)
    status = with_tags(count.status(record, is_running=runs), store)
    return replace(status, devices=_devices(store, sweep_id)) if runs else status


def is_running(store: ResultStore, sweep_id: str) -> bool:
    """Whether a live process drives the sweep."""
    return is_locked(store.lease_path(sweep_id))


def _devices(store: ResultStore, sweep_id: str) -> tuple[Mapping[str, object], ...]:
    found = read_progress(store.progress_path(sweep_id))
    return tuple({"device": name, **facts} for name, facts in found.items())


def state_of(record: SweepRecord, *, is_running: bool) -> str:
    """A sweep's state; without a live process nothing runs and no import is under way."""
    if is_running:
        return SweepState.RUNNING
    ended = {SweepState.RUNNING: SweepState.STOPPED, SweepState.IMPORTING: SweepState.INTERRUPTED}
    return "unknown" if record.state is None else ended.get(record.state, record.state)


def _of_run(started: list[datetime], record: SweepRecord) -> list[datetime]:
    """Start times of the current run's attempts; the pause before a resume does not count."""
    if record.run_started_utc is None:
        return started
    since = datetime.fromisoformat(record.run_started_utc)
    return [stamp for stamp in started if stamp >= since]


def _seconds_left(started: list[datetime], n_left: int) -> float | None:
    """Estimated seconds left at the pace since the first attempt; `None` before the second.

    Also `None` while the clock is behind the first attempt because it was set back.
    """
    elapsed_s = (datetime.now(UTC) - min(started)).total_seconds() if len(started) > 1 else 0.0
    return elapsed_s / len(started) * n_left if elapsed_s > 0 else None


def _failure(row: Mapping[str, object]) -> dict[str, object]:
    return {
        "model": row.get("model"),
        "workload": row.get("workload"),
        "platform": row.get("platform_key"),
        "repeat": row.get("repeat"),
        "error": row.get("error_kind"),
        "message": row.get("error_message"),
        "remedy": row.get("error_remedy"),
    }


def _attempt(row: Mapping[str, object]) -> dict[str, object]:
    p50 = row.get("latency_p50_ns")
    names = (
        "finished_utc", "sweep_id", "device", "model", "platform_key", "repeat", "attempt",
        "error_kind",
    )  # fmt: skip
    return {name: row.get(name) for name in names} | {
        "workload": row.get("workload") or str(IMAGE),
        "latency_ms": p50 / NS_PER_MS if isinstance(p50, int | float) else None,
        "flags": row.get("flags") or [],
    }
