"""Faults of a phone, by name: each one can be injected, by hand or at random times."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Fault(StrEnum):
    """A fault and its duration.

    Faults with 'once' wait for the next occasion and end with it; the others last until the
    injection's `duration_s` is over, or until they are cleared.
    """

    UNAUTHORIZED = "unauthorized"
    """No key is accepted; open connections are cut so that the fault is visible."""
    OFFLINE = "offline"
    """CNXN gets no answer; open connections are cut."""
    DROP_PUSH = "drop_push"
    """Once: the connection is cut in the middle of the next file sent to the phone."""
    DROP_RUN = "drop_run"
    """Once: the connection is cut while the next runner is running."""
    HANG = "hang"
    """No request is answered any more; connections stay open."""
    REBOOT = "reboot"
    """The phone is away for `duration_s`, then back, at first without `sys.boot_completed`."""
    STORAGE_FULL = "storage_full"
    NO_EXIT_CODES = "no_exit_codes"
    """The phone no longer announces shell v2; open connections are cut so that it is visible."""
    CLOCK_JUMP = "clock_jump"
    """The phone's `date` is a day ahead."""
    RUNNER_CRASH = "runner_crash"
    """Once: a segmentation fault ends the next runner after half its output."""
    HALF_OUTPUT = "half_output"
    """Once: the next runner stops printing half-way, writes no result file and exits with 0."""
    GARBAGE_OUTPUT = "garbage_output"
    """Once: the next runner prints random bytes, in the result file too."""
    SLOW_RUN = "slow_run"
    """Once: the next runner takes three seconds more, so that its clocks can be watched."""
    HOSTILE_NAMES = "hostile_names"
    """Listings over sync contain file names outside the requested folder."""
    THROTTLED = "throttled"
    """Clocks at 60 %, thermal status moderate."""
    HOT = "hot"
    """Battery at 46 degrees, skin at 52, thermal status severe."""
    SETTINGS_DENIED = "settings_denied"
    """`settings put` and `delete` are denied, as several makers do by default."""
    BATTERY_LOW = "battery_low"
    """Battery at 12 %, not charging."""
    UNPLUGGED = "unplugged"
    """No charger: the battery drains, and programs take the time that they print."""
    CORES_OFFLINE = "cores_offline"
    """Only the small cores are online: the others have no clock, and no program can be pinned to
    them alone."""
    HANGUP_ONLY = "hangup_only"
    """A closed connection sends SIGHUP to the command's shell alone, as adbd does; its program
    goes on."""
    WARM = "warm"
    """Battery at 39 degrees; thermal status none."""
    WARMS_UP = "warms_up"
    """After each run the phone is warm for `duration_s`; lasts until it is cleared."""
    BATTERY_SAVER = "battery_saver"
    """Battery saver is on."""
    DOZES = "dozes"
    """The screen is off and the phone is in deep idle."""
    NAN_SENSOR = "nan_sensor"
    """The first temperature is `NaN`, as the Thermal HAL writes an unavailable one."""
    HAL_NOT_READY = "hal_not_ready"
    """The thermal service has no HAL: it writes status 0 and no current temperature."""
    SHARED_SERIAL = "shared_serial"
    """The serial number that every cheap tablet of one maker has."""


CUTTING = frozenset({Fault.UNAUTHORIZED, Fault.OFFLINE, Fault.NO_EXIT_CODES, Fault.REBOOT})
"""Faults that are visible only when the client reconnects."""

ONCE = frozenset({Fault.DROP_PUSH, Fault.DROP_RUN})
"""The daemon ends these at the next occasion, however late it comes."""

RUNNER = frozenset({Fault.RUNNER_CRASH, Fault.HALF_OUTPUT, Fault.GARBAGE_OUTPUT, Fault.SLOW_RUN})
"""The next stand-in of a runner finds these in the phone's folder and ends them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault of a fault run; `phone` counts from 0."""

    after_s: float
    phone: int
    fault: Fault
    duration_s: float


def draw_injections(
    rng: random.Random, *, phones: int, count: int, span_s: float, faults: Sequence[Fault]
) -> tuple[Injection, ...]:
    """Draws `count` injections over `span_s`, in order of time; every given fault occurs.

    `count` below the number of `faults` is raised to it.
    """
    kinds = [*faults, *rng.choices(faults, k=max(0, count - len(faults)))]
    drawn = [
        Injection(
            after_s=rng.uniform(0.0, span_s),
            phone=rng.randrange(phones),
            fault=fault,
            duration_s=rng.uniform(0.5, 3.0),
        )
        for fault in kinds
    ]
    return tuple(sorted(drawn, key=lambda injection: injection.after_s))


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

    Removing the file decides between two programs, so each fault happens once.
    """
    for fault in sorted(RUNNER):
        try:
            (root / _FOLDER / fault.value).unlink()
        except FileNotFoundError:
            continue
        return fault
    return None
