"""Energy of repeated runs, from any counter: one loop, and this host's own source (RAPL).

zeus is not used. Its windows give joules without the number of counter steps, which we need to
tell a reading from noise. It also needs pandas, scikit-learn and amdsmi in the measuring process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fleetrank.device_agents.contract.measurement import Energy
from fleetrank.device_agents.linux.worker_process import number_of, text_of
from fleetrank.device_agents.timing import Clock, Step
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.vocabulary import EnergyMethod

MIN_STEPS = 20
"""Counter steps in a window. Both ends are at a step, so the error is that of one check."""
MAX_LENGTHS = 4.0
"""After this many times its least duration, a window with too few steps ends."""
LOOK_NS = 10_000_000
"""Time between two counter checks; a check takes up to 0.1 ms, in which no inference runs."""
_RAPL_PACKAGES = "sys/class/powercap"
_UJ_PER_MJ = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyReading:
    """Energy since the source was opened, and how often the sensor's value has changed."""

    mj: float
    updates: int


class CounterSource:
    """A counter that only rises, or wraps around at `range_mj`."""

    def __init__(
        self,
        method: EnergyMethod,
        read_mj: Callable[[], float | None],
        *,
        range_mj: float | None = None,
    ) -> None:
        self.method = method
        self._read_mj = read_mj
        self._range_mj = range_mj
        self._last: float | None = None
        self._total = 0.0
        self._updates = 0

    def read(self) -> EnergyReading | None:
        """Reads the counter. If it falls and has no range, it was reset: `None`."""
        now = self._read_mj()
        if now is None:
            return None
        grown = 0.0 if self._last is None else now - self._last
        if grown < 0:
            if self._range_mj is None:
                return None
            grown += self._range_mj
        self._last = now
        self._total += grown
        self._updates += grown > 0
        return EnergyReading(mj=self._total, updates=self._updates)


class PolledSource:
    """Power integrated between checks by the trapezoidal rule, for devices without a counter."""

    def __init__(
        self, method: EnergyMethod, read_mw: Callable[[], float | None], clock: Clock
    ) -> None:
        self.method = method
        self._read_mw = read_mw
        self._clock = clock
        self._last: tuple[int, float] | None = None
        self._total = 0.0
        self._updates = 0

    def read(self) -> EnergyReading | None:
        """Reads the accumulated energy."""
        power, now = self._read_mw(), self._clock()
        if power is None:
            return None
        if self._last is not None:
            then, before = self._last
            self._total += (power + before) / 2 * (now - then) / NS_PER_S
            self._updates += power != before
        self._last = (now, power)
        return EnergyReading(mj=self._total, updates=self._updates)


class RaplSource:
    """The kernel's counters of all processor packages together."""

    method = EnergyMethod.RAPL_COUNTER

    def __init__(self, packages: tuple[CounterSource, ...]) -> None:
        self._packages = packages

    def read(self) -> EnergyReading | None:
        """Reads all counters; if one part is missing, the sum is missing."""
        readings = [package.read() for package in self._packages]
        known = [reading for reading in readings if reading is not None]
        if not known or len(known) < len(readings):
            return None
        return EnergyReading(
            mj=sum(reading.mj for reading in known),
            # The packages' counters change together; the slowest gives the number of steps.
            updates=min(reading.updates for reading in known),
        )


EnergySource = CounterSource | PolledSource | RaplSource
"""What counts the energy of a device: `read` gives its state, `None` if it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyWindow:
    """The energy from one step of the counter to another; see `measurement.Energy`."""

    mj: float
    ns: int
    runs: int
    steps: int
    is_enough: bool

    @property
    def power_mw(self) -> float | None:
        """Mean power over the window; `None` if it is too short."""
        return self.mj / self.ns * NS_PER_S if self.is_enough else None


def count_energy(
    source: EnergySource, step: Step, clock: Clock, *, least_s: float
) -> EnergyWindow | None:
    """Repeats the step until the window is long enough and its counter has changed often enough.

    `None` if the source cannot be read. A window with too few steps reports this.
    """
    first = source.read()
    if first is None:
        return None
    begin = clock()
    looks = CounterLooks(begin, first)
    limit_ns = begin + int(MAX_LENGTHS * least_s * NS_PER_S)
    runs, next_look = 0, begin + LOOK_NS
    while True:
        step()
        runs += 1
        now = clock()
        if now < next_look:
            continue
        reading = source.read()
        if reading is None:
            return None
        looks.add(now, reading, runs)
        window = looks.window(least_s)
        if window.is_enough or now >= limit_ns:
            return window
        next_look = clock() + LOOK_NS


class CounterLooks:
    """The first and the last check at which the counter had changed."""

    def __init__(self, begin_ns: int, reading: EnergyReading) -> None:
        """Starts with the state of the counter before the first run."""
        self._updates = reading.updates
        self._first: tuple[int, EnergyReading, int] | None = None
        self._last = (begin_ns, reading, 0)
        self._steps = 0

    def add(self, now_ns: int, reading: EnergyReading, runs: int) -> None:
        """Takes one check, with the number of runs made until then."""
        if reading.updates == self._updates:
            return
        self._updates = reading.updates
        self._last = (now_ns, reading, runs)
        if self._first is None:
            self._first = self._last
        else:
            self._steps += 1

    def window(self, least_s: float) -> EnergyWindow:
        """From the first to the last change of the counter."""
        start, (end_ns, end, end_runs) = self._first or self._last, self._last
        start_ns, first, start_runs = start
        length_ns = end_ns - start_ns
        is_long = length_ns >= least_s * NS_PER_S and length_ns > 0
        return EnergyWindow(
            mj=end.mj - first.mj,
            ns=length_ns,
            runs=end_runs - start_runs,
            steps=self._steps,
            is_enough=is_long and self._steps >= MIN_STEPS and end_runs > start_runs,
        )


def judge_energy(
    method: EnergyMethod, idle: EnergyWindow | None, busy: EnergyWindow | None
) -> Energy | None:
    """One repeat's energy per inference, with and without the device's idle energy."""
    if busy is None:
        return None
    idle_mw = None if idle is None else idle.power_mw
    total = busy.mj / busy.runs if busy.is_enough else None
    share = None if idle_mw is None or total is None else idle_mw * busy.ns / NS_PER_S / busy.runs
    return Energy(
        method=method,
        per_inference_mj=total,
        above_idle_mj=None if total is None or share is None else total - share,
        idle_power_mw=idle_mw,
        window_ns=busy.ns,
        runs=busy.runs,
        counter_steps=busy.steps,
    )


def open_rapl(root: Path = Path("/")) -> RaplSource | None:
    """The counters of this host; `None` if they do not exist or this user may not read them.

    Since Linux 5.10 only root may read them: the counters once leaked secrets (CVE-2020-8694).

    Source: Linux, Documentation/power/powercap: `energy_uj` counts microjoules and wraps around at
        `max_energy_range_uj`; `intel-rapl:N` is a package, also on AMD; its parts have a second
            number and are included in it.
    """
    folders = sorted((root / _RAPL_PACKAGES).glob("intel-rapl:[0-9]*"))
    packages = [folder for folder in folders if folder.name.count(":") == 1]
    # `psys` is the whole board, packages included.
    named = [folder for folder in packages if text_of(folder / "name").startswith("package")]
    sources = tuple(map(_rapl_source, named))
    rapl = RaplSource(sources)
    return rapl if sources and rapl.read() is not None else None


def _rapl_source(folder: Path) -> CounterSource:
    read: Callable[[], float | None] = partial(_read_mj, folder / "energy_uj")
    return CounterSource(
        EnergyMethod.RAPL_COUNTER, read, range_mj=_read_mj(folder / "max_energy_range_uj")
    )


def _read_mj(file: Path) -> float | None:
    microjoules = number_of(file)
    return None if microjoules is None else microjoules / _UJ_PER_MJ
