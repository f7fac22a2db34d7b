"""Stores a sweep's setup in its record, and plans the setup again from the record."""

import hashlib
from collections import Counter, defaultdict
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from fleetrank.analysis.stored.sweep_record import (
    Provenance,
    RecordedPlan,
    RecordedSkip,
    SweepRecord,
    SweepState,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.small_file import read_small_text
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.identity.keys import canonical_json, platform_key
from fleetrank.orchestrator.sweep.fleet import fleet_of_record
from fleetrank.orchestrator.sweep.sweep_setup import Setup, plan_sweep
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
)
from fleetrank.orchestrator.workspace.device_spec import DeviceSpec
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace


def new_record(sweep_id: str, setup: Setup, spec_path: Path, provenance: Provenance) -> SweepRecord:
    """The record of a sweep that starts now; `setup_of_record` reads the setup back."""
    plan = setup.plan
    return SweepRecord(
        sweep_id=sweep_id,
        state=SweepState.RUNNING,
        started_utc=record_stamp(),
        finished_utc=None,
        spec_path=str(spec_path),
        spec_text=read_small_text(spec_path),
        spec=setup.spec.model_dump(mode="json"),
        only=setup.only,
        fleet=setup.fleet.as_record(),
        refused=dict(setup.refused),
        plan=RecordedPlan(
            n_cells=len(plan.cells),
            cells_by_device=dict(Counter(cell.device for cell in plan.cells)),
            repeats=plan.repeats,
            models=sorted({cell.export.card.name for cell in plan.cells}),
            platforms=sorted({cell.platform_key for cell in plan.cells}),
            sha256=_fingerprints(setup),
        ),
        skipped=[RecordedSkip(label=one.label, reason=one.reason) for one in plan.skipped],
        **dict(provenance),
    )


def record_stamp() -> str:
    """The time rounded to whole seconds, as stored in records."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    fleet = fleet_of_record(record.fleet)

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
    devices = {
        f"device {name}": _sha256(_what_matters(device)) for name, device in setup.devices.items()
    }
    return models | devices


def _sha256(content: object) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def _what_matters(device: DeviceFile) -> dict[str, object]:
    """The fields of a device that affect results; a phone's canary decides which repeats count."""
    registered = device.registration
    found = registered and registered.model_dump(mode="json", exclude={"registered_utc"})
    return asdict(device.spec) | {"host": device.host} | ({"registration": found} if found else {})
