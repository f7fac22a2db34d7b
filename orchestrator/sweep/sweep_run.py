"""Starts a sweep from its file, and resumes an interrupted one from its record."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ValidationError

from fleetrank.analysis.stored.sweep_record import (
    Provenance,
    RecordedPlan,
    RecordedSkip,
    SweepRecord,
    SweepState,
    stamp_now,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.hosts.messages import DeviceSpec
from fleetrank.foundation.files import RUN_AGAIN
from fleetrank.foundation.small_file import read_small_text
from fleetrank.foundation.wording import duration
from fleetrank.orchestrator.errors import NewerSchemaError, RayLostError, StoreError, UsageError
from fleetrank.orchestrator.keys import canonical_json, platform_key
from fleetrank.orchestrator.progress import Publisher
from fleetrank.orchestrator.progress_events import Notice, SweepFinished
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.tagging import write_tags
from fleetrank.orchestrator.sweep.dispatch_backend import DispatchBackend, open_dispatch_backend
from fleetrank.orchestrator.sweep.fleet import fleet_of_record, with_cores_of_today
from fleetrank.orchestrator.sweep.sweep_argument import read_spec
from fleetrank.orchestrator.sweep.sweep_session import RunOptions, SweepSession, check_host
from fleetrank.orchestrator.sweep.sweep_setup import Setup, plan_sweep
from fleetrank.orchestrator.workspace.provenance import clock_lag, new_sweep_id, sweep_provenance
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSpec:
    """A specification as the record of its sweep keeps it.

    Attributes:
        origin: path of its file, or the command that made it.
        text: of the file, or the same in YAML.
    """

    spec: SweepSpec
    origin: str
    text: str


def run_sweep(
    workspace: Workspace, spec_path: Path, options: RunOptions, *, only: str | None = None
) -> SweepFinished:
    """Starts a new sweep and runs it until it is finished or stopped.

    Raises:
        UsageError: a file is wrong.
        NothingToDoError: no cell can be measured, or no device answers.
        FleetError: this host lacks what `check_host` names.
        StoreError: the results cannot be written; what was stored before is kept.
    """
    spec, path = read_spec(workspace, spec_path)
    written = WrittenSpec(spec=spec, origin=str(path), text=read_small_text(path))
    return start_sweep(workspace, written, options, only=only)


def start_sweep(
    workspace: Workspace,
    written: WrittenSpec,
    options: RunOptions,
    *,
    only: str | None = None,
    check: Callable[[Setup], None] | None = None,
) -> SweepFinished:
    """Starts a sweep whose specification has been read or made; errors as `run_sweep`.

    `check` can refuse the plan before anything is stored.
    """
    with _open_backend(workspace, options, written.spec) as backend:
        setup = plan_sweep(workspace, written.spec, only, backend.fleet, backend.ask_host)
        if check is not None:
            check(setup)
        check_host(workspace, setup, setup.plan.cells, is_trusted=options.is_trusted)
        store = ResultStore(workspace.results)
        known = store.sweep_ids()
        if lag := clock_lag(known):
            late = (
                f"this host's clock is {duration(lag.total_seconds())} behind the start of the "
                "newest stored sweep; tables treat the latest start as the newest: correct the "
                "clock, or name the sweep with `sweep=`"
            )
            Publisher(options.subscribers)(Notice(level="warning", message=late))
        sweep_id = new_sweep_id(written.spec.name, known)
        store.create_sweep(new_record(sweep_id, setup, written, sweep_provenance(workspace.root)))
        if options.tags is not None:
            write_tags(store, sweep_id, options.tags)
        with _resumable(sweep_id):
            session = SweepSession(workspace, store, sweep_id, setup, options, backend)
            return session.run(is_new=True)


def resume_sweep(workspace: Workspace, sweep_id: str | None, options: RunOptions) -> SweepFinished:
    """Measures the pending repeats of a sweep (default: the newest); finished ones are kept.

    Raises:
        UsageError: the sweep does not exist, is running, or its models have changed, or a needed
            host does not answer.
        NothingToDoError: there are no sweeps.
        StoreError: as `run_sweep`.
    """
    store = ResultStore(workspace.results)
    sweep_id = sweep_id or store.newest_sweep()
    setup = setup_of_record(workspace, store.sweep_record(sweep_id))
    with _open_backend(workspace, options, setup.spec) as backend:
        _check_same_place(setup, options)
        for host in sorted({*options.needed_hosts} - {*backend.fleet.hosts}):
            there = ", ".join(backend.fleet.hosts)
            raise UsageError(f"host {host} does not answer", f"these do: {there}")
        with _resumable(sweep_id):
            return SweepSession(workspace, store, sweep_id, setup, options, backend).run()


def new_record(
    sweep_id: str, setup: Setup, written: WrittenSpec, provenance: Provenance
) -> SweepRecord:
    """The record of a sweep that starts now; `setup_of_record` reads the setup back."""
    plan = setup.plan
    return SweepRecord(
        sweep_id=sweep_id,
        state=SweepState.RUNNING,
        started_utc=stamp_now(),
        finished_utc=None,
        spec_path=written.origin,
        spec_text=written.text,
        spec=setup.spec.model_dump(mode="json"),
        only=setup.only,
        fleet=setup.fleet.as_record(),
        refused=dict(setup.refused),
        plan=RecordedPlan(
            n_cells=len(plan.cells),
            cells_by_device=dict(Counter(cell.device for cell in plan.cells)),
            repeats=plan.least_repeats,
            models=sorted({cell.export.card.name for cell in plan.cells}),
            platforms=sorted({cell.platform_key for cell in plan.cells}),
            sha256=_fingerprints(setup),
        ),
        skipped=[RecordedSkip(label=one.label, reason=one.reason) for one in plan.skipped],
        **dict(provenance),
    )


def setup_of_record(workspace: Workspace, record: SweepRecord) -> Setup:
    """Plans a recorded sweep again for its original hosts, available or not.

    Checks that the plan has not changed.

    Raises:
        StoreError: the record is damaged.
        UsageError: a model card, a checkpoint or a device has changed since, or the sweep was
            imported.
    """
    if record.is_imported:
        raise UsageError(
            f"{record.sweep_id} was imported and cannot be resumed",
            "`fleetrank results import` completes an import that was cut short",
        )
    if record.spec is None or record.plan is None:
        raise _damaged(record, "it has no specification or no plan")
    try:
        spec = SweepSpec.model_validate(record.spec)
    except ValidationError as error:
        raise _damaged(record, str(error)) from error
    fleet = with_cores_of_today(fleet_of_record(record.fleet))

    def as_it_was(_host: str, device: DeviceSpec, execution: Execution) -> str | None:
        return record.refused.get(platform_key(device.name, execution))

    setup = plan_sweep(workspace, spec, record.only, fleet=fleet, ask_host=as_it_was)
    now, was = _fingerprints(setup), record.plan.sha256
    if now != was:
        names = sorted(name for name in {*now, *was} if now.get(name) != was.get(name))
        raise UsageError(
            f"sweep {record.sweep_id} cannot be resumed: changed since it began: "
            f"{', '.join(names)}",
            "undo the change, or start a new sweep; measured results are kept",
        )
    return setup


@contextmanager
def _resumable(sweep_id: str) -> Iterator[None]:
    """Adds how to resume to an error: a full disk, lost permission, a moved folder, a lost Ray."""
    try:
        yield
    except NewerSchemaError:
        raise
    except (StoreError, RayLostError) as error:
        resume = f"then `fleetrank sweep resume {sweep_id}`: measured results are kept"
        remedy = error.remedy.removesuffix(f", {RUN_AGAIN}")
        raise type(error)(error.message, f"{remedy}, {resume}") from error


def _open_backend(
    workspace: Workspace, options: RunOptions, spec: SweepSpec
) -> AbstractContextManager[DispatchBackend]:
    return open_dispatch_backend(
        workspace,
        cluster=options.cluster,
        is_inline=options.is_inline,
        emit=Publisher(options.subscribers),
        silent_s=spec.hosts.silent_s,
    )


def _check_same_place(setup: Setup, options: RunOptions) -> None:
    """Rejects resuming in another place: a cluster has other devices than this host."""
    if setup.fleet.is_cluster == (options.cluster is not None):
        return
    if setup.fleet.is_cluster:
        raise UsageError("this sweep ran on a cluster", "add `cluster=ADDRESS`")
    raise UsageError("this sweep ran on this host only", "remove `cluster=`")


def _damaged(record: SweepRecord, problem: str) -> StoreError:
    return StoreError(
        f"the record of sweep {record.sweep_id} is damaged: {problem}",
        "start a new sweep; measured results are kept",
    )


def _fingerprints(setup: Setup) -> dict[str, str]:
    """Hashes of each model's cells and of each device, since cell keys hold only device names."""
    of_model: dict[str, list[str]] = defaultdict(list)
    for cell in setup.plan.cells:
        of_model[cell.export.card.name].append(cell.cell_key)
    models = {f"model {name}": _sha256(sorted(keys)) for name, keys in of_model.items()}
    devices = {}
    for name, device in setup.devices.items():
        # A phone's canary decides which repeats count.
        registered = device.registration
        found = registered and registered.model_dump(mode="json", exclude={"registered_utc"})
        matters = asdict(device.spec) | {"host": device.host}
        del matters["power"]  # it changes no figure
        devices[f"device {name}"] = _sha256(matters | ({"registration": found} if found else {}))
    return models | devices


def _sha256(content: object) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
