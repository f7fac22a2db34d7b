"""The progress of sweeps, read from records, leases and journals; works while they run."""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from fleetrank.analysis.stored.sweep_record import IMPORTED, SweepRecord, SweepState
from fleetrank.analysis.stored.sweep_tags import shown_tags
from fleetrank.foundation.lease import seems_locked
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.workload import IMAGE
from fleetrank.orchestrator.dispatch.decide.lane import RepeatKey
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.fleet_state import DeviceProgress
from fleetrank.orchestrator.keys import RowKey
from fleetrank.orchestrator.progress import read_decisions
from fleetrank.orchestrator.progress_file import read_progress, waits_of
from fleetrank.orchestrator.store.journal import JournalTail
from fleetrank.orchestrator.store.results import ResultStore

_MAX_FAILURES = 20
"""The newest failures shown; the results hold all of them."""
_LATEST = 30
"""Number of newest attempts that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """What `fleetrank sweep status` shows, and the server.

    Attributes:
        state: `running finished interrupted failed imported`, or `stopped`: its driver died, or a
            device was abandoned.
        seconds_left: from the pace of the current run; `None` when it does not run.
        devices: for each device its host, its `DeviceProgress` and its work now, why and how long
            it waits or is out of use (as a sentence, and as reason and time), when its power was
            switched, its counts and its last attempt; `n_repeats` is `None` if the record does not
            contain the device. Empty if no journal was read.
        n_overcome: failed tries of repeats that another try measured.
        failures: the last error of repeats without a valid measurement, and the number of tries;
            only the newest, for display.
        tags, note: what a person says about the sweep.
        latest: its last attempts, newest first.
        decisions: of a sweep until decided, the fields of `DecisionsMade` for each platform.
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
    decisions: tuple[Mapping[str, object], ...] = ()


class SweepCount:
    """Counts the rows of a sweep; processes them one by one, so a journal is read only once."""

    def __init__(self) -> None:
        """Starts with no rows."""
        self._latest: deque[Mapping[str, object]] = deque(maxlen=_LATEST)
        self._tally = Tally()
        self._of_device: dict[str, Tally] = {}
        self._last: dict[str, Mapping[str, object]] = {}
        self._failures: dict[RepeatKey, Mapping[str, object]] = {}
        self._n_tries_failed: Counter[RepeatKey] = Counter()
        self._started: list[datetime] = []

    def observe(self, row: Mapping[str, object]) -> None:
        """Counts one row of the journal."""
        device = str(row.get("device"))
        self._tally.observe(row)
        self._of_device.setdefault(device, Tally()).observe(row)
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
        self._last[device] = _attempt(row)
        self._latest.appendleft(self._last[device])

    def status(
        self, store: ResultStore, record: SweepRecord, *, is_running: bool, is_read: bool = True
    ) -> SweepStatus:
        """The progress of this record's sweep; if its journal `is_read` its rows count."""
        n_ok, n_failed = self._tally.n_ok, self._tally.n_failed
        least = 0 if record.plan is None else record.plan.n_cells * record.plan.repeats
        n_repeats = max(least, n_ok + n_failed) if _is_until_decided(record) else least
        n_left = max(0, n_repeats - n_ok - n_failed)
        if not is_read and record.counts is not None:
            n_ok, n_failed, n_left = record.counts
        started = _of_run(self._started, record)
        state = state_of(record, is_running=is_running)
        return SweepStatus(
            sweep_id=record.sweep_id,
            state=IMPORTED if record.is_imported else state,
            started_utc=record.started_utc,
            finished_utc=record.finished_utc,
            n_repeats=n_repeats,
            n_ok=n_ok,
            n_failed=n_failed,
            n_left=n_left,
            seconds_left=_seconds_left(started, n_left) if is_running else None,
            devices=self._devices(store, record, is_running=is_running) if is_read else (),
            n_overcome=self._n_tries_failed.total()
            - sum(self._n_tries_failed[key] for key in self._failures),
            failures=tuple(self._failures.values())[-_MAX_FAILURES:],
            latest=tuple(self._latest),
            decisions=tuple(read_decisions(store.progress_path(record.sweep_id)))
            if _is_until_decided(record)
            else (),
            **dict(shown_tags(store.root, record.sweep_id)),
        )

    def _devices(
        self, store: ResultStore, record: SweepRecord, *, is_running: bool
    ) -> tuple[Mapping[str, object], ...]:
        # After its end: why devices were left out. After a crash the file is about the past.
        is_true = is_running or record.finished_utc is not None
        now = read_progress(store.progress_path(record.sweep_id)) if is_true else {}
        plan = record.plan
        cells = {} if plan is None else plan.cells_by_device
        tallies = {device: Tally() for device in (*cells, *now)} | self._of_device
        planned = {} if plan is None else {name: n * plan.repeats for name, n in cells.items()}
        return tuple(
            {"device": device}
            | _device(now.get(device, {}), tally, planned.get(device), is_running=is_running)
            | {"last": self._last.get(device)}
            for device, tally in sorted(tallies.items())
        )


def _device(
    now: Mapping[str, object], tally: Tally, n_repeats: int | None, *, is_running: bool
) -> dict[str, object]:
    """What a status says of a device; `now` is what `read_progress` says of it."""
    stated = str(now.get("state"))
    state = DeviceProgress(stated) if stated in set(DeviceProgress) else DeviceProgress.PENDING
    is_left_out = state is DeviceProgress.LEFT_OUT
    if n_repeats is not None and tally.n_ok + (0 if is_left_out else tally.n_failed) >= n_repeats:
        state = DeviceProgress.FINISHED
    elif not (is_running or is_left_out):
        state = DeviceProgress.PENDING
    return {
        "host": now.get("host"),
        "state": state,
        "running": now.get("running") if is_running else None,
        "waits": waits_of(now),
        "reason": now.get("waits"),
        "waited_s": now.get("waited_s"),
        "power": now.get("power", []),
        "n_repeats": n_repeats,
        "n_ok": tally.n_ok,
        "n_failed": tally.n_failed,
    }


def read_status(store: ResultStore, sweep_id: str) -> SweepStatus:
    """Reads record and journal of a sweep; changes nothing.

    Raises:
        UsageError: the sweep does not exist.
        StoreError: its record is damaged.
    """
    record, runs, count = store.sweep_record(sweep_id), is_running(store, sweep_id), SweepCount()
    for row in store.open_journal(sweep_id).rows():
        count.observe(row)
    return count.status(store, record, is_running=runs)


_FRESH_S = 0.5
"""Several open pages share one reading."""
_LISTED = 1000
"""Number of sweeps that are looked at, the newest first."""


class Live:
    """The progress of one workspace's sweeps; used by many threads.

    Cheap enough to be asked every second during a measurement: each line of a journal is read once,
    and only while its sweep runs.
    """

    def __init__(self, results: Path) -> None:
        self._results = results
        self._watched: dict[str, tuple[JournalTail, SweepCount]] = {}
        self._seen: tuple[float, list[SweepStatus]] | None = None
        self._lock = threading.Lock()

    def progress(self) -> list[SweepStatus]:
        """Returns all running sweeps and the newest ones; newest first.

        The devices of a sweep are filled only if it ran while this server was running.

        Raises:
            StoreError: the results come from a newer fleetrank.
        """
        with self._lock:
            if self._seen is None or monotonic() - self._seen[0] > _FRESH_S:
                self._seen = (monotonic(), self._look())
            return self._seen[1]

    def _look(self) -> list[SweepStatus]:
        store = ResultStore(self._results)
        return [
            self._status(store, sweep_id)
            for number, sweep_id in enumerate(store.sweep_ids()[::-1][:_LISTED])
            if number == 0 or is_running(store, sweep_id)
        ]

    def _status(self, store: ResultStore, sweep_id: str) -> SweepStatus:
        record = store.record_or_id(sweep_id)
        runs = is_running(store, sweep_id)
        # The record of an ended sweep has its counts, so its journal is not read.
        if runs or record.state is SweepState.RUNNING or record.counts is None:
            path = store.open_journal(sweep_id).path
            self._watched.setdefault(sweep_id, (JournalTail(path), SweepCount()))
        if sweep_id not in self._watched:
            return SweepCount().status(store, record, is_running=False, is_read=False)
        tail, count = self._watched[sweep_id]
        # After record and lease were read, so that the counts are not older than they are.
        for row in tail.new_rows():
            count.observe(row)
        return count.status(store, record, is_running=runs)


def is_running(store: ResultStore, sweep_id: str) -> bool:
    """Whether a live process drives the sweep."""
    return seems_locked(store.lease_path(sweep_id))


def state_of(record: SweepRecord, *, is_running: bool) -> str:
    """A sweep's state; without a live process nothing runs and no import is under way."""
    if is_running:
        return SweepState.RUNNING
    ended = {SweepState.RUNNING: SweepState.STOPPED, SweepState.IMPORTING: SweepState.INTERRUPTED}
    return "unknown" if record.state is None else ended.get(record.state, record.state)


def _is_until_decided(record: SweepRecord) -> bool:
    return bool(record.spec and record.spec.get("until"))


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
