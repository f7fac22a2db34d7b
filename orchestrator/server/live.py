"""Progress of a workspace's sweeps, from records, leases and the ends of their journals.

Cheap enough to be called every second during a measurement: each line of a journal is read once,
and only while its sweep runs.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic

from fleetrank.analysis.stored.sweep_record import IMPORTED, SweepRecord, SweepState
from fleetrank.orchestrator.dispatch.decide.state import Tally
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.progress import read_progress, text_of, waits_of
from fleetrank.orchestrator.store.journal import JournalTail
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import SweepCount, SweepStatus, is_running, with_tags

_FRESH_S = 0.5
"""Several open pages share one reading."""
_LISTED = 1000
"""Number of sweeps that are looked at, the newest first."""


class _Watched:
    """A sweep that was running at an earlier request."""

    def __init__(self, path: Path) -> None:
        self._tail = JournalTail(path)
        self._devices: dict[str, Tally] = {}
        self._last: dict[str, Mapping[str, object]] = {}
        self.count = SweepCount()

    def look(self) -> None:
        for row in self._tail.new_rows():
            device = str(row.get("device"))
            self.count.observe(row)
            self._devices.setdefault(device, Tally()).observe(row)
            self._last[device] = self.count.latest[0]

    def devices(
        self, record: SweepRecord, now: Mapping[str, Mapping[str, object]]
    ) -> tuple[Mapping[str, object], ...]:
        """What each device does now, why it waits, its counts and its last attempt.

        `n_repeats` is `None` if the sweep's record does not contain the device.
        """
        plan = record.plan
        cells = {} if plan is None else plan.cells_by_device
        tallies = {device: Tally() for device in cells} | self._devices
        return tuple(
            {
                "device": device,
                "running": text_of(now.get(device, {}).get("running")),
                "waits": waits_of(now.get(device, {})),
                "n_repeats": cells[device] * plan.repeats if plan and device in cells else None,
                "n_ok": tally.n_ok,
                "n_failed": tally.n_failed,
                "last": self._last.get(device),
            }
            for device, tally in sorted(tallies.items())
        )


class Live:
    """The progress of one workspace's sweeps; used by many threads."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._watched: dict[str, _Watched] = {}
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
            with_tags(self._counted(store, sweep_id), store)
            for number, sweep_id in enumerate(store.sweep_ids()[::-1][:_LISTED])
            if number == 0 or is_running(store, sweep_id)
        ]

    def _counted(self, store: ResultStore, sweep_id: str) -> SweepStatus:
        try:
            record = store.sweep_record(sweep_id)
        except (StoreError, UsageError):
            record = SweepRecord(sweep_id=sweep_id)  # damaged: it hides no other sweep
        runs = is_running(store, sweep_id)
        # The record of an ended sweep has its counts, so its journal is not read.
        if runs or record.state is SweepState.RUNNING or record.counts is None:
            path = store.open_journal(sweep_id).path
            self._watched.setdefault(sweep_id, _Watched(path))
        watched = self._watched.get(sweep_id)
        if watched is None:
            status = SweepCount().status(record, is_running=False)
            n_ok, n_failed, n_left = record.counts or (status.n_ok, status.n_failed, status.n_left)
            return replace(status, n_ok=n_ok, n_failed=n_failed, n_left=n_left)
        # After record and lease were read, so that the counts are not older than they are.
        watched.look()
        status = watched.count.status(record, is_running=runs)
        now = read_progress(store.progress_path(sweep_id)) if runs else {}
        return replace(
            status,
            state=IMPORTED if record.is_imported else status.state,
            devices=watched.devices(record, now),
        )
