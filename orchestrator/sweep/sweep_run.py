"""Starts a sweep from its file, and resumes an interrupted one."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path

from fleetrank.foundation.files import RUN_AGAIN
from fleetrank.orchestrator.errors import NewerSchemaError, StoreError, UsageError
from fleetrank.orchestrator.progress.events import Notice
from fleetrank.orchestrator.progress.publisher import Publisher
from fleetrank.orchestrator.progress.wording import duration
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.dispatch_backend import DispatchBackend, open_dispatch_backend
from fleetrank.orchestrator.sweep.sweep_record import new_record, setup_of_record
from fleetrank.orchestrator.sweep.sweep_session import RunOptions, SweepOutcome, SweepSession
from fleetrank.orchestrator.sweep.sweep_setup import Setup, plan_sweep, read_spec
from fleetrank.orchestrator.workspace.provenance import clock_lag, new_sweep_id, sweep_provenance
from fleetrank.orchestrator.workspace.workspace import Workspace


def run_sweep(
    workspace: Workspace, spec_path: Path, options: RunOptions, *, only: str | None = None
) -> SweepOutcome:
    """Starts a new sweep and runs it until it is finished or stopped.

    Raises:
        UsageError: a file is wrong.
        NothingToDoError: no cell can be measured, or no device answers.
        StoreError: the results cannot be written; what was stored before is kept.
    """
    spec, path = read_spec(workspace, spec_path)
    with _open_backend(workspace, options) as backend:
        setup = plan_sweep(workspace, spec, only, backend.fleet, backend.ask_host)
        store = ResultStore(workspace.results)
        known = store.sweep_ids()
        if lag := clock_lag(known):
            Publisher(options.subscribers)(Notice(level="warning", message=_late(lag)))
        sweep_id = new_sweep_id(spec.name, known)
        store.create_sweep(new_record(sweep_id, setup, path, sweep_provenance(workspace.root)))
        with _resumable(sweep_id):
            return SweepSession(workspace, store, sweep_id, setup, options, backend).run()


def resume_sweep(workspace: Workspace, sweep_id: str | None, options: RunOptions) -> SweepOutcome:
    """Measures the pending repeats of a sweep (default: the newest); finished ones are kept.

    Raises:
        UsageError: the sweep does not exist, is running, or its models have changed.
        NothingToDoError: there are no sweeps.
        StoreError: as `run_sweep`.
    """
    store = ResultStore(workspace.results)
    sweep_id = sweep_id or store.newest_sweep()
    setup = setup_of_record(workspace, store.sweep_record(sweep_id))
    with _open_backend(workspace, options) as backend:
        _check_same_place(setup, options)
        with _resumable(sweep_id):
            return SweepSession(workspace, store, sweep_id, setup, options, backend).run()


def _late(lag: timedelta) -> str:
    return (
        f"this host's clock is {duration(lag.total_seconds())} behind the start of the "
        "newest stored sweep; tables treat the latest start as the newest: correct the clock, or "
        "name the sweep with --sweep"
    )


@contextmanager
def _resumable(sweep_id: str) -> Iterator[None]:
    """Adds to a storage error how to resume: after a full disk, lost permission or moved folder."""
    try:
        yield
    except NewerSchemaError:
        raise
    except StoreError as error:
        resume = f"then `fleetrank sweep resume {sweep_id}`: measured results are kept"
        remedy = error.remedy.removesuffix(f", {RUN_AGAIN}")
        raise type(error)(error.message, f"{remedy}, {resume}") from error


def _open_backend(
    workspace: Workspace, options: RunOptions
) -> AbstractContextManager[DispatchBackend]:
    return open_dispatch_backend(
        workspace,
        cluster=options.cluster,
        is_inline=options.is_inline,
        emit=Publisher(options.subscribers),
    )


def _check_same_place(setup: Setup, options: RunOptions) -> None:
    """Rejects resuming in another place: a cluster has other devices than this host."""
    if setup.fleet.is_cluster == (options.cluster is not None):
        return
    if setup.fleet.is_cluster:
        raise UsageError("this sweep ran on a cluster", "add --cluster ADDRESS")
    raise UsageError("this sweep ran on this host only", "remove --cluster")
