"""The state of the devices of a workspace now, from its device files and the sweeps that run."""

import logging
from statistics import fmean

from fleetrank.device_agents.contract.proof import proof_words
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.fleet_state import OUT_OF_USE, DeviceProgress
from fleetrank.orchestrator.progress_file import read_progress
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import is_running
from fleetrank.orchestrator.workspace.device_registry import read_device_files
from fleetrank.orchestrator.workspace.workspace import Workspace

_log = logging.getLogger(__name__)
_NEWEST = 100
"""Sweeps that are looked at; older ones do not run any more."""


def lab_states(workspace: Workspace) -> dict[str, dict[str, object]]:
    """As `devices_table.States`; a wrong device file is logged."""
    found: dict[str, dict[str, object]] = {}
    try:
        files = read_device_files(workspace)
    except UsageError as error:
        _log.warning("%s: %s", error.message, error.remedy)
        files = {}
    for name, device in files.items():
        canary_ns = device.found.canary_latency_ns
        canary_ms = fmean(canary_ns) / NS_PER_MS if canary_ns else None
        found[name] = {
            "state": "registered",
            "canary_registered_ms": canary_ms,
            "proof": None if device.proof is None else proof_words(device.proof),
        }
    store = ResultStore(workspace.results)
    newest = store.sweep_ids()[-_NEWEST:]
    for sweep_id in newest:
        runs = is_running(store, sweep_id)
        if runs or sweep_id == newest[-1]:
            for name, now in read_progress(store.progress_path(sweep_id)).items():
                if runs or now.get("state") == DeviceProgress.LEFT_OUT:
                    found.setdefault(name, {}).update(_state(now, sweep_id, is_running=runs))
    return found


def _state(now: dict[str, object], sweep_id: str, *, is_running: bool) -> dict[str, object]:
    """The state of a device of a sweep, and why: that sweep has it, or what it waits for."""
    state, reason = now.get("state"), now.get("waits")
    if state in OUT_OF_USE:
        return {"state": "away", "why": reason}
    if reason is not None:
        return {"state": "waiting", "why": reason}
    return {"state": "in use", "why": f"sweep {sweep_id}"} if is_running else {}
