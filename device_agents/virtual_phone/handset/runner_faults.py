"""Faults that wait in a phone's folder for its next runner."""

from pathlib import Path

from fleetrank.device_agents.virtual_phone.handset.faults import RUNNER, Fault

_FOLDER = ".phone/runner_faults"


def leave_fault(root: Path, fault: Fault) -> None:
    """Leaves a fault for the next runner."""
    folder = root / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / fault.value).touch()


def remove_fault(root: Path, fault: Fault) -> None:
    """Removes a fault that no runner has met."""
    (root / _FOLDER / fault.value).unlink(missing_ok=True)


def take_fault(root: Path) -> Fault | None:
    """Returns the fault that the runner must show and removes it; `None` without a fault.

    Removing the file decides between two runners, so each fault happens once.
    """
    for fault in sorted(RUNNER):
        try:
            (root / _FOLDER / fault.value).unlink()
        except FileNotFoundError:
            continue
        return fault
    return None
