"""Stores a sweep's setup in its record, and plans the setup again from the record."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.small_file import read_small_text
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.identity.keys import canonical_json, platform_key
from fleetrank.orchestrator.store.results import IMPORTED
from fleetrank.orchestrator.sweep.fleet import fleet_of_record
from fleetrank.orchestrator.sweep.sweep_setup import Setup, plan_sweep
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
)
from fleetrank.orchestrator.workspace.device_spec import DeviceSpec
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace


def setup_record(setup: Setup, spec_path: Path) -> dict[str, object]:
    """The plan as stored in a sweep's record; `setup_of_record` reads it back."""
    plan = setup.plan
    return {
        "spec_path": str(spec_path),
        "spec_text": read_small_text(spec_path),
        "spec": setup.spec.model_dump(mode="json"),
        "only": setup.only,
        "fleet": setup.fleet.as_record(),
        "refused": dict(setup.refused),
        "plan": {
            "n_cells": len(plan.cells),
            "cells_by_device": dict(Counter(cell.device for cell in plan.cells)),
            "repeats": plan.repeats,
            "models": sorted({cell.export.card.name for cell in plan.cells}),
            "platforms": sorted({cell.platform_key for cell in plan.cells}),
            "sha256": _fingerprints(setup),
        },
        "skipped": [asdict(skipped) for skipped in plan.skipped],
    }


def setup_of_record(workspace: Workspace, sweep_id: str, record: Mapping[str, object]) -> Setup:
    """Plans a recorded sweep again for its original hosts, available or not.

    Checks that the plan has not changed.

    Raises:
        StoreError: the record is damaged.
        UsageError: a model card, a checkpoint or a device has changed since, or the sweep was
            imported.
    """
    if record.get("origin") == IMPORTED:
        raise UsageError(
            f"{sweep_id} was imported and cannot be resumed",
            "`fleetrank results import` completes an import that was cut short",
        )
    try:
        spec = SweepSpec.model_validate(record["spec"])
        plan_facts = record["plan"]
        only = record["only"]
        before = plan_facts["sha256"] if isinstance(plan_facts, Mapping) else None
    except (KeyError, ValidationError) as error:
        raise StoreError(
            f"the record of sweep {sweep_id} is damaged: {error}",
            "start a new sweep; measured results are kept",
        ) from error
    fleet = fleet_of_record(record.get("fleet"))
    given = record.get("refused")
    refused = given if isinstance(given, Mapping) else {}

    def as_it_was(_host: str, device: DeviceSpec, execution: Execution) -> str | None:
        return refused.get(platform_key(device.name, execution))

    setup = plan_sweep(
        workspace, spec, only if isinstance(only, str) else None, fleet=fleet, ask_host=as_it_was
    )
    now = _fingerprints(setup)
    if now != before:
        was = before if isinstance(before, Mapping) else {}
        names = sorted(str(name) for name in {*now, *was} if now.get(name) != was.get(name))
        raise UsageError(
            f"sweep {sweep_id} cannot be resumed: changed since it began: {', '.join(names)}",
            "undo the change, or start a new sweep; measured results are kept",
        )
    return setup


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
