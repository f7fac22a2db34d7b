"""Energy of one inference on a phone: a separate run, beside which the power is read.

Only on a phone that nothing charges: the battery's counters then show what the phone uses. The
program's timed runs follow one another without a pause, so the power in a window times the time of
one run is the energy of one run. The looks that count lie in the timed runs: after the program has
loaded and warmed up, and before it ends.

The window is that of `linux.energy`: from one step of the counter to another, at least 20 steps. A
phone has no idle window: 20 steps of a battery at rest take minutes.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median

from fleetrank.device_agents.android.execution.phone_watch import LOOK_TIMEOUT_S, Look, PhoneWatch
from fleetrank.device_agents.android.execution.program_run import PhonePrograms, read
from fleetrank.device_agents.android.phone import Phone, read_sections
from fleetrank.device_agents.android.state.power_text import (
    FILES_SCRIPT,
    FULL_SCRIPT,
    LOOK_S,
    MAX_ENERGY_S,
    PowerLook,
    currents_ua,
    parse_look,
)
from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.contract.measurement import Energy, Measurement
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import StoppedError
from fleetrank.device_agents.linux.energy import (
    MIN_STEPS,
    CounterLooks,
    EnergyReading,
    EnergyWindow,
    judge_energy,
)
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.vocabulary import EnergyMethod

_SPARE = 1.5
"""A second run is longer than needed by this factor: the pace of a counter is not steady."""
_FIRST_LOOKS = 5
"""Looks of the first run, which finds the pace of the counter."""
LAST_S = 0.3
"""The program takes this long to end; in it the phone may be at rest again."""
_MC_PER_UAH = 3.6
_MOST_TIMES_USUAL = 5.0
"""A counter that moves this much faster than usual was corrected: a phone that repeats one
inference changes its power by a factor of two or three, and a coarse counter its pace by two."""
_LARGEST_DIFFERENCE = 0.3
"""Between two sources of one battery, as a share of the larger; both are of one gauge."""
_logger = logging.getLogger(__name__)
_Looks = Sequence[Look[PowerLook]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRun:
    """The request for a phone's energy.

    Attributes:
        latency_ns: of one run of the task, as it was just measured.
        cells: as of `parse_look`.
        look_s: time between two looks.
        max_s: the longest run; a counter that needs more time gives no figure.
    """

    programs: PhonePrograms
    task: MeasureTask
    latency_ns: int
    cells: int = 1
    look_s: float = LOOK_S
    max_s: float = MAX_ENERGY_S

    def measure(self) -> Energy | None:
        """Runs the task again and counts its energy; `None` if the phone cannot tell it.

        The repeat was measured before, so a failure of this run does not make it fail.

        Raises:
            StoppedError: the user asked to stop.
        """
        try:
            return self._measure()
        except StoppedError:
            raise
        except FleetError as error:
            _logger.warning("no energy of phone %r: %s", self.programs.phone.serial, error.message)
            return None

    def _measure(self) -> Energy | None:
        first = _see(self.programs.phone, FULL_SCRIPT, self.cells, self.programs.stop_requested)
        if not (first.is_discharging and first.has_source):
            return None
        script = FILES_SCRIPT if _has_files(self.programs) else FULL_SCRIPT
        length_s = max(self.task.policy.energy_s, _FIRST_LOOKS * self.look_s)
        found = self._run(script, min(length_s, self.max_s))
        if found is None or found.per_inference_mj is not None or found.counter_steps == 0:
            return found
        longer_s = length_s * _SPARE * (MIN_STEPS + 1) / found.counter_steps
        return found if longer_s > self.max_s else self._run(script, longer_s)

    def _run(self, script: str, length_s: float) -> Energy | None:
        task = _lasting(self.task, self.latency_ns, length_s)
        placed = self.programs.place(task)
        see = partial(_see, self.programs.phone, script, self.cells)
        watch = PhoneWatch(see, first_s=self.look_s, every_s=self.look_s)
        reading = read(task, self.programs.run(task, placed, watch))
        mean_ns, runs = _mean_and_runs(reading)
        begin_ns = watch.ended_ns - mean_ns * runs
        looks = [look for look in watch.taken(last_s=LAST_S) if look.middle_ns >= begin_ns]
        return energy_of(looks, mean_ns=mean_ns, least_s=self.task.policy.energy_s)


def longest_energy_s(task: MeasureTask, max_s: float) -> float:
    """The time limits of both runs together; 0 if the task counts no energy."""
    return 2 * _timeout_s(task, max_s) if task.policy.energy_s > 0 else 0.0


def energy_of(looks: _Looks, *, mean_ns: int, least_s: float) -> Energy | None:
    """The energy of one inference from looks during its runs; `None` without a source.

    The first source with enough steps in this order: rails, charge, current. Without one, the
    figure is missing, and the source with most steps says how many it had. It is missing too where
    charge and current of the battery differ too much: one of them is wrong.

    Args:
        looks: all while the program ran one inference after another.
        mean_ns: of one inference.
        least_s: least duration of the window.
    """
    if not looks or any(look.seen.is_discharging is False for look in looks):
        return None
    windows = {
        method: window
        for method, source in _SOURCES
        if (window := _window(looks, source, mean_ns=mean_ns, least_s=least_s)) is not None
    }
    if not windows:
        return None
    most = max(windows, key=lambda method: windows[method].steps)
    method = next((method for method, window in windows.items() if window.is_enough), most)
    window = windows[method]
    if method is EnergyMethod.BATTERY_COUNTER and _differs(window, windows.get(_BESIDE)):
        _logger.warning("no energy: the battery's charge and its current do not agree")
        window = replace(window, is_enough=False)
    return judge_energy(method, None, window)


def _differs(window: EnergyWindow, other: EnergyWindow | None) -> bool:
    """Whether two windows, both with a figure, show unlike powers."""
    if other is None or window.power_mw is None or other.power_mw is None:
        return False
    smaller, larger = sorted((window.power_mw, other.power_mw))
    return larger - smaller > _LARGEST_DIFFERENCE * larger


def _window(
    looks: _Looks, source: "_Source", *, mean_ns: int, least_s: float
) -> EnergyWindow | None:
    readings = list(source(looks))
    if len(readings) < len(looks) or not readings:
        return None
    begin_ns = looks[0].middle_ns
    counted = CounterLooks(begin_ns, readings[0])
    for look, reading in zip(looks[1:], readings[1:], strict=True):
        counted.add(look.middle_ns, reading, round((look.middle_ns - begin_ns) / mean_ns))
    return counted.window(least_s)


def _rails(looks: _Looks) -> Iterable[EnergyReading]:
    return _counted(looks, [_scaled(look.seen.rails_uj, 1e-3) for look in looks])


def _charge(looks: _Looks) -> Iterable[EnergyReading]:
    """Charge that left the battery, times the mean voltage: it falls by per cents in an hour."""
    voltages = [look.seen.voltage_mv for look in looks]
    known = [voltage for voltage in voltages if voltage is not None]
    if not known:
        return []
    mj_per_uah = _MC_PER_UAH * sum(known) / len(known) / 1000
    return _counted(looks, [_scaled(look.seen.charge_uah, -mj_per_uah) for look in looks])


def _counted(looks: _Looks, values_mj: Sequence[float | None]) -> Iterable[EnergyReading]:
    """A counter that only rises; nothing if a value is missing, it falls or was corrected."""
    known = [value for value in values_mj if value is not None]
    if len(known) < len(values_mj):
        return
    moves = [
        (look.middle_ns, now)
        for look, before, now in zip(looks[1:], known, known[1:], strict=False)
        if now != before
    ]
    paces = [
        (now - before) / (now_ns - before_ns)
        for (before_ns, before), (now_ns, now) in pairwise([(looks[0].middle_ns, known[0]), *moves])
    ]
    # The first move may follow a rest that began before the first look.
    usual = median(paces[1:] or [0.0])
    if min(paces, default=0.0) < 0 or max(paces[1:], default=0.0) > _MOST_TIMES_USUAL * usual:
        return
    updates = 0
    for before, now in pairwise([known[0], *known]):
        updates += now != before
        yield EnergyReading(mj=now - known[0], updates=updates)


def _current(looks: _Looks) -> Iterable[EnergyReading]:
    """Power between two looks by the trapezoidal rule."""
    total_mj, updates = 0.0, 0
    before: tuple[int, float] | None = None
    reported = [look.seen.current for look in looks]
    known = currents_ua([current for current in reported if current is not None])
    if len(known) < len(reported):
        return
    for look, current_ua in zip(looks, known, strict=True):
        voltage_mv = look.seen.voltage_mv
        if voltage_mv is None:
            return
        power_mw = current_ua * voltage_mv * 1e-6
        if before is not None:
            then_ns, then_mw = before
            total_mj += (power_mw + then_mw) / 2 * (look.middle_ns - then_ns) / NS_PER_S
            updates += power_mw != then_mw
        before = (look.middle_ns, power_mw)
        yield EnergyReading(mj=total_mj, updates=updates)


_BESIDE = EnergyMethod.BATTERY_POLLED
"""What the charge of a battery is compared with."""
_Source = Callable[[_Looks], Iterable[EnergyReading]]
_SOURCES: tuple[tuple[EnergyMethod, _Source], ...] = (
    (EnergyMethod.ODPM_COUNTER, _rails),
    (EnergyMethod.BATTERY_COUNTER, _charge),
    (EnergyMethod.BATTERY_POLLED, _current),
)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _lasting(task: MeasureTask, latency_ns: int, length_s: float) -> MeasureTask:
    """The task with as many runs as the time needs; each program takes a number of runs."""
    runs = max(1, math.ceil(length_s * NS_PER_S / latency_ns))
    policy = replace(task.policy, min_runs=runs, max_time_s=2 * length_s)
    limits = replace(task.limits, timeout_s=_timeout_s(task, length_s))
    return replace(task, policy=policy, limits=limits, check_path=None)


def _timeout_s(task: MeasureTask, length_s: float) -> float:
    """Loading and warm-up have the time of the task itself."""
    return task.limits.timeout_s + 2 * length_s


def _mean_and_runs(reading: Measurement) -> tuple[int, int]:
    samples, summary = reading.samples_ns, reading.summary
    if samples:
        return round(sum(samples) / len(samples)), len(samples)
    if summary is None:
        return 1, 0
    return summary.mean_ns or summary.latency_ns, summary.count or 0


def _has_files(programs: PhonePrograms) -> bool:
    """Whether the kernel's files alone say enough; else each look asks the battery service."""
    return _see(programs.phone, FILES_SCRIPT, 1, programs.stop_requested).has_source


def _see(phone: Phone, script: str, cells: int, stop: StopRequested) -> PowerLook:
    sections = read_sections(phone, script, timeout_s=LOOK_TIMEOUT_S, stop_requested=stop)
    return parse_look(sections, cells)
