"""Rows that a device claims of itself: stored, and in no table until a person accepts it.

They are excluded as a person excludes rows, so every table says so.
"""

from fleetrank.analysis.stored.exclusions import ANY_SWEEP, Exclusion, read_exclusions
from fleetrank.orchestrator.store.small_files import exclude, take_back
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.workspace import Workspace


def keep_out(workspace: Workspace, device: DeviceFile) -> bool:
    """Leaves the rows of a device out of all figures, if its kind needs that; false otherwise."""
    if not device.traits.needs_acceptance:
        return False
    if _found(workspace, device.name) is None:
        reason = f"not accepted: `fleetrank devices accept {device.name}`"
        exclude(workspace.results, ANY_SWEEP, _pattern(device.name), reason)
    return True


def accept(workspace: Workspace, device: DeviceFile) -> bool:
    """Lets the rows of a device count; false if they count already."""
    found = _found(workspace, device.name)
    if found is not None:
        take_back(workspace.results, found.number)
    return found is not None


def _found(workspace: Workspace, name: str) -> Exclusion | None:
    wanted = (ANY_SWEEP, _pattern(name))
    entries = read_exclusions(workspace.results).entries
    return next((one for one in entries if (one.sweep_id, one.pattern) == wanted), None)


def _pattern(name: str) -> str:
    """Of every platform of a device: their keys begin with its name."""
    return f"{name}/*"
