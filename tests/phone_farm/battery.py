"""A phone's battery: what leaves it, and how makers report it.

The dump follows `BatteryService.java` of frameworks/base; the lines in lower case are
Samsung's. The rails follow the `energy_value` of a Pixel 6.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from phone_farm.faults import Fault
from phone_farm.profile import Gauge
from phone_farm.services import TEXTS, battery_c, word_of

IDLE_MW, BUSY_MW = 900.0, 3000.0
"""Power of the whole phone with its screen on, at rest and while a program computes."""
_RAILS_SHARE = 0.6
"""Share of the power that flows through the rails of processors and memory."""
VOLTAGE_MV = 4000
_FULL_UAH = 2_712_000
_MJ_PER_UAH = 3.6 * VOLTAGE_MV / 1000
_WOBBLES = (0, 7, -5, 3, -8, 5, -2)
"""Deviations of the current from one reading to the next, in per mille."""
_SUPPLY = "sys/class/power_supply/battery"
_RAILS = "sys/bus/iio/devices/iio:device0/energy_value"


@dataclass(slots=True)
class Battery:
    """Counts the energy that the phone has used since its start."""

    used_mj: float = 0.0
    power_mw: float = IDLE_MW
    since_s: float = 0.0
    readings: int = 0

    def advance(self, now_s: float, *, is_running: bool) -> None:
        """Counts until now, and goes on with the power of what the phone does from now on."""
        self.used_mj += self.power_mw * (now_s - self.since_s)
        self.since_s = now_s
        self.power_mw = BUSY_MW if is_running else IDLE_MW

    @property
    def charge_uah(self) -> float:
        """The charge that is left."""
        return _FULL_UAH - self.used_mj / _MJ_PER_UAH

    def current_ua(self) -> float:
        """The size of the current; each reading differs a little, as those of real gauges."""
        self.readings += 1
        wobble = 1 + _WOBBLES[self.readings % len(_WOBBLES)] / 1000
        return self.power_mw / VOLTAGE_MV * 1_000_000 * wobble


def battery_dump(
    faults: Collection[Fault], battery: Battery | None = None, gauge: Gauge | None = None
) -> str:
    """`dumpsys battery`; a phone on its charger reports a charge that does not move."""
    is_low = Fault.BATTERY_LOW in faults
    is_free = is_low or Fault.UNPLUGGED in faults
    charge, more = _FULL_UAH, ""
    if battery is not None and gauge is not None:
        charge = _charge(battery, gauge)
        if gauge.current_unit_ua and not gauge.has_files:
            more = f"  current now: {_current(battery, gauge)}\n  charge counter: 0\n"
    text = (
        (TEXTS / "battery")
        .read_text()
        .format(
            powered=word_of(not is_free),
            charge=charge,
            status=3 if is_free else 2,
            level=12 if is_low else 84,
            voltage=4190 if battery is None else VOLTAGE_MV,
            tenths_c=round(10 * battery_c(faults)),
        )
    )
    return text + more


def power_files(battery: Battery, gauge: Gauge) -> Mapping[str, str]:
    """The kernel's files that the shell of this phone may read, by path without first slash."""
    files = {}
    if gauge.has_files:
        files = {
            f"{_SUPPLY}/status": "Discharging",
            f"{_SUPPLY}/charge_counter": str(_charge(battery, gauge)),
            f"{_SUPPLY}/voltage_now": str(VOLTAGE_MV * 1000),
        }
        if gauge.current_unit_ua:
            files[f"{_SUPPLY}/current_now"] = str(_current(battery, gauge))
    if gauge.has_rails:
        files[_RAILS] = _rails(battery)
    return {path: f"{text}\n" for path, text in files.items()}


def _charge(battery: Battery, gauge: Gauge) -> int:
    steps = int(battery.charge_uah // gauge.charge_step_uah)
    return steps * gauge.charge_step_uah // gauge.charge_unit_uah


def _current(battery: Battery, gauge: Gauge) -> int:
    return gauge.current_sign * round(battery.current_ua() / gauge.current_unit_ua)


def _rails(battery: Battery) -> str:
    """Two rails of the processors, and one of the radio, which is not of the computation."""
    stamp = int(battery.since_s * 1000)
    compute_uj = battery.used_mj * _RAILS_SHARE * 1000
    rails = {
        "VSYS_PWR_MODEM": battery.used_mj * 100,
        "S2M_VDD_CPUCL2": compute_uj * 0.75,
        "S1M_VDD_MIF": compute_uj * 0.25,
    }
    lines = (f"CH{n}(T={stamp})[{r}], {int(e)}" for n, (r, e) in enumerate(rails.items()))
    return "\n".join((f"t={stamp}", *lines))
