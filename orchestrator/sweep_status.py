"""How far a sweep is, read from its record and journal; may be asked while it runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from device_agents.file_lease import is_locked
from orchestrator.dispatch.tally import Tally
from orchestrator.progress.progress_file import read_progress
from orchestrator.store.results import ResultStore

_MAX_FAILURES = 20
"""The last ones; all are in the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """What `fleetrank sweep status` shows.

    Attributes:
        state: `running finished interrupted failed`, or `stopped`: its driver died,
            or a device was given up.
        seconds_left: from the pace of the current run; `None` when it does not run.
        devices: what each does now and has done in the current run; none when it does not run.
        failures: the last attempts that failed, for people.
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
    failures: tuple[Mapping[str, object], ...]

    def as_json(self) -> dict[str, object]:
        """The same as JSON values."""
        return asdict(self)


def read_status(store: ResultStore, sweep_id: str) -> SweepStatus:
    """Reads record and journal of a sweep; changes nothing.

    Raises:
        UsageError: no such sweep.
        StoreError: its record is damaged.
    """
    record = store.sweep_record(sweep_id)
    tally = Tally()
    failures: list[Mapping[str, object]] = []
    started: list[datetime] = []
    for row in store.open_journal(sweep_id).rows():
        tally.observe(row)
        if row.get("error_kind") is not None:
            failures = [*failures[1 - _MAX_FAILURES :], _failure(row)]
        if isinstance(stamp := row.get("started_utc"), str):
            started.append(datetime.fromisoformat(stamp))
    n_repeats = _n_repeats(record)
    n_left = max(0, n_repeats - tally.n_ok - tally.n_failed)
    is_running = is_locked(store.root / "sweeps" / f"{sweep_id}.lease")
    return SweepStatus(
        sweep_id=sweep_id,
        state=_state(record, is_running=is_running),
        started_utc=_text(record.get("started_utc")),
        finished_utc=_text(record.get("finished_utc")),
        n_repeats=n_repeats,
        n_ok=tally.n_ok,
        n_failed=tally.n_failed,
        n_left=n_left,
        seconds_left=_seconds_left(_of_run(started, record), n_left) if is_running else None,
        devices=_devices(store, sweep_id) if is_running else (),
        failures=tuple(failures),
    )


def _devices(store: ResultStore, sweep_id: str) -> tuple[Mapping[str, object], ...]:
    found = read_progress(store.progress_path(sweep_id))
    return tuple({"device": name, **facts} for name, facts in found.items())


def _state(record: Mapping[str, object], *, is_running: bool) -> str:
    if is_running:
        return "running"
    state = str(record.get("state"))
    return "stopped" if state == "running" else state


def _of_run(started: list[datetime], record: Mapping[str, object]) -> list[datetime]:
    """Starts of the current run's attempts; the pause before a resume is no part of its pace."""
    run_started = record.get("run_started_utc")
    if not isinstance(run_started, str):
        return started
    since = datetime.fromisoformat(run_started)
    return [stamp for stamp in started if stamp >= since]


def _seconds_left(started: list[datetime], n_left: int) -> float | None:
    """At the pace since the first of these attempts; `None` before the second."""
    if len(started) < 2:
        return None
    elapsed_s = (datetime.now(UTC) - min(started)).total_seconds()
    return elapsed_s / len(started) * n_left


def _n_repeats(record: Mapping[str, object]) -> int:
    plan = record.get("plan")
    if not isinstance(plan, Mapping):
        return 0
    return int(str(plan.get("n_cells", 0))) * int(str(plan.get("repeats", 0)))


def _failure(row: Mapping[str, object]) -> dict[str, object]:
    return {
        "model": row.get("model"),
        "platform": row.get("platform_key"),
        "repeat": row.get("repeat"),
        "error": row.get("error_kind"),
        "message": row.get("error_message"),
        "remedy": row.get("error_remedy"),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
