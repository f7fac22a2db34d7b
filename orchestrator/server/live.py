"""Progress of a workspace's sweeps, from records, leases and the ends of their journals.

Cheap enough to be called every second during a measurement: each line of a journal is read once,
and only while its sweep runs.
"""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic

from fleetrank.analysis.stored.sweep_record import IMPORTED, SweepRecord, SweepState
from fleetrank.foundation.inputs.workload import IMAGE
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.progress.progress_file import read_progress, text_of, waits_of
from fleetrank.orchestrator.store.journals.journal_tail import JournalTail
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import SweepCount, SweepStatus, is_running, with_tags

_FRESH_S = 0.5
"""Several open pages share one reading."""
_LATEST = 30
"""Number of newest attempts that are shown."""
_LISTED = 1000
"""Number of sweeps in a list, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProgress:
    """One device in one sweep; `n_repeats` is `None` if the sweep's record does not contain it.

    Attributes:
        running: what it measures now; `None` if nothing or unknown. `waits`: why it cannot now.
        last: its last stored attempt.
    """

    device: str
    running: str | None
    waits: str | None
    n_repeats: int | None
    n_ok: int
    n_failed: int
    last: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProgress:
    """One sweep; `devices` is filled only if the sweep ran while this server was running."""

    status: SweepStatus
    devices: tuple[DeviceProgress, ...]
    latest: tuple[Mapping[str, object], ...]

    def as_json(self) -> dict[str, object]:
        """The same as JSON values."""
        devices = [asdict(device) for device in self.devices]
        return {**self.status.as_json(), "devices": devices, "latest": list(self.latest)}


class _Watched:
    """A sweep that was running at an earlier request."""

    def __init__(self, path: Path) -> None:
        self._tail = JournalTail(path)
        self._devices: dict[str, Tally] = {}
        self._last: dict[str, Mapping[str, object]] = {}
        self.count = SweepCount()
        self.latest: deque[Mapping[str, object]] = deque(maxlen=_LATEST)

    def look(self) -> None:
        for row in self._tail.new_rows():
            device = str(row.get("device"))
            self.count.observe(row)
            self._devices.setdefault(device, Tally()).observe(row)
            self._last[device] = shown = _shown(row)
            self.latest.appendleft(shown)

    def devices(
        self, record: SweepRecord, now: Mapping[str, Mapping[str, object]]
    ) -> tuple[DeviceProgress, ...]:
        totals = _totals(record)
        tallies = {device: Tally() for device in totals} | self._devices
        return tuple(
            DeviceProgress(
                device=device,
                running=text_of(now.get(device, {}).get("running")),
                waits=waits_of(now.get(device, {})),
                n_repeats=totals.get(device),
                n_ok=tally.n_ok,
                n_failed=tally.n_failed,
                last=self._last.get(device),
            )
            for device, tally in sorted(tallies.items())
        )


class Live:
    """The progress of one workspace's sweeps; used by many threads."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._watched: dict[str, _Watched] = {}
        self._seen: tuple[float, list[SweepProgress]] | None = None
        self._lock = threading.Lock()

    def progress(self) -> list[SweepProgress]:
        """Returns all running sweeps and the newest ones; newest first.

        Raises:
            StoreError: the results come from a newer fleetrank.
        """
        with self._lock:
            if self._seen is None or monotonic() - self._seen[0] > _FRESH_S:
                self._seen = (monotonic(), self._look())
            return self._seen[1]

    def sweeps(self) -> list[SweepStatus]:
        """Returns all sweeps, newest first; a sweep with a damaged record is left out."""
        store = ResultStore(self._results)
        with self._lock:
            known = [_record(store, sweep_id) for sweep_id in _newest_first(store)]
            return [self._progress_of(store, one).status for one in known if one is not None]

    def of_sweep(self, sweep_id: str) -> SweepProgress:
        """Returns one sweep; without its devices if it ended before this server read it.

        Raises:
            UsageError: no such sweep.
            StoreError: its record is damaged.
        """
        store = ResultStore(self._results)
        with self._lock:
            return self._progress_of(store, store.sweep_record(sweep_id))

    def record(self, sweep_id: str) -> SweepRecord:
        """Returns the record of a sweep.

        Raises:
            UsageError: no such sweep; the remedy names the nearest.
            StoreError: its record is damaged.
        """
        return ResultStore(self._results).sweep_record(sweep_id)

    def _look(self) -> list[SweepProgress]:
        store = ResultStore(self._results)
        return [
            self._progress_of(store, _record(store, sweep_id) or SweepRecord(sweep_id=sweep_id))
            for number, sweep_id in enumerate(_newest_first(store))
            if number == 0 or is_running(store, sweep_id)
        ]

    def _progress_of(self, store: ResultStore, record: SweepRecord) -> SweepProgress:
        found = self._counted(store, record)
        return replace(found, status=with_tags(found.status, store))

    def _counted(self, store: ResultStore, record: SweepRecord) -> SweepProgress:
        sweep_id = record.sweep_id
        runs = is_running(store, sweep_id)
        # The record of an ended sweep has its counts, so its journal is not read.
        if runs or record.state is SweepState.RUNNING or record.counts is None:
            path = store.open_journal(sweep_id).path
            self._watched.setdefault(sweep_id, _Watched(path))
        watched = self._watched.get(sweep_id)
        if watched is None:
            return SweepProgress(status=_at_its_end(record), devices=(), latest=())
        # After record and lease were read, so that the counts are not older than they are.
        watched.look()
        status = watched.count.status(record, is_running=runs)
        if record.is_imported:
            status = replace(status, state=IMPORTED)
        now = read_progress(store.progress_path(sweep_id)) if runs else {}
        return SweepProgress(
            status=status, devices=watched.devices(record, now), latest=tuple(watched.latest)
        )


def _newest_first(store: ResultStore) -> list[str]:
    return store.sweep_ids()[::-1][:_LISTED]


def _record(store: ResultStore, sweep_id: str) -> SweepRecord | None:
    """Returns `None` for a damaged record, so that the list shows the other sweeps."""
    try:
        return store.sweep_record(sweep_id)
    except (StoreError, UsageError):
        return None


def _at_its_end(record: SweepRecord) -> SweepStatus:
    """The progress of a sweep that does not run, from the counts in its record."""
    status = SweepCount().status(record, is_running=False)
    if record.counts is None:
        return status
    n_ok, n_failed, n_left = record.counts
    return replace(status, n_ok=n_ok, n_failed=n_failed, n_left=n_left)


def _totals(record: SweepRecord) -> dict[str, int]:
    plan = record.plan
    return (
        {}
        if plan is None
        else {device: n * plan.repeats for device, n in plan.cells_by_device.items()}
    )


def _shown(row: Mapping[str, object]) -> dict[str, object]:
    p50 = row.get("latency_p50_ns")
    return {
        "finished_utc": row.get("finished_utc"),
        "sweep_id": row.get("sweep_id"),
        "device": row.get("device"),
        "model": row.get("model"),
        "workload": row.get("workload") or str(IMAGE),
        "platform_key": row.get("platform_key"),
        "repeat": row.get("repeat"),
        "attempt": row.get("attempt"),
        "latency_ms": p50 / NS_PER_MS if isinstance(p50, int | float) else None,
        "error_kind": row.get("error_kind"),
        "flags": row.get("flags") or [],
    }
