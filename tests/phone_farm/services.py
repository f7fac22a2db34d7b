"""What services of Android print about a phone's heat and power, as text.

The formats follow `ThermalManagerService.java` and `PowerManagerService.java` of frameworks/base;
written by hand, not recorded. Only the values that fleetrank reads have a meaning here.
"""

from collections.abc import Collection
from pathlib import Path

from phone_farm.faults import Fault

TEXTS = Path(__file__).with_name("texts")
"""What services and programs print, with `{names}` for what changes."""


def thermal_dump(faults: Collection[Fault]) -> str:
    """`dumpsys thermalservice`; the cached section is old on purpose, as on many phones."""
    if Fault.HAL_NOT_READY in faults:
        return "IsStatusOverride: false\nThermal Status: 0\nHAL Ready: false\n"
    is_hot = Fault.HOT in faults
    status = 3 if is_hot else 2 if Fault.THROTTLED in faults else 0
    nan = "\tTemperature{mValue=NaN, mType=3, mName=disp_therm, mStatus=0}\n"
    cpu_c = 88.4 if is_hot else 41.2
    return (
        (TEXTS / "thermalservice")
        .read_text()
        .format(
            status=status,
            cooling=2 if status else 0,
            nan=nan if Fault.NAN_SENSOR in faults else "",
            cpu_c=cpu_c,
            gpu_c=round(cpu_c - 2.5, 1),
            battery_c=battery_c(faults),
            skin_c=52.0 if is_hot else 31.7,
        )
    )


def battery_c(faults: Collection[Fault]) -> float:
    """The temperature of the battery, in degrees."""
    return 46.2 if Fault.HOT in faults else 39.0 if Fault.WARM in faults else 28.7


def power_dump(faults: Collection[Fault] = ()) -> str:
    """`dumpsys power`, in the form of Android 9 and later."""
    dozes = Fault.DOZES in faults
    return (
        (TEXTS / "power")
        .read_text()
        .format(
            wakefulness="Dozing" if dozes else "Awake",
            dozes=word_of(dozes),
            saves=word_of(Fault.BATTERY_SAVER in faults),
        )
    )


def word_of(is_so: bool) -> str:
    """As services write it."""
    return "true" if is_so else "false"
