"""Energy of repeated runs, from any counter: one loop, and this host's own source (RAPL).

zeus is not used. Its windows give joules without the number of counter steps, which we need to
tell a reading from noise. It also needs pandas, scikit-learn and amdsmi in the measuring process.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fleetrank.device_agents.contract.measurement import Energy
from fleetrank.device_agents.host.conditions import ROOT
from fleetrank.device_agents.host.worker_process import number_of, text_of
from fleetrank.device_agents.timing import Clock, Step
from fleetrank.foundation.vocabulary import NS_PER_S, EnergyMethod

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


# Power of a whole board from the sensor at its input, where the maker built one in.
#
# Only the input is read: a sum of rails counts some power twice and misses the rest (jetson_stats
# issue 51).
#
# Source: NVIDIA Jetson Linux Developer Guide, "Power and Performance", INA3221 and INA238;
#     Documentation/hwmon/sysfs-interface.rst of the Linux kernel: `inN_input` in mV, `currN_input`
#     in mA, `powerN_input` in microwatts. JetPack 4: `in_powerN_input` in mW.

INPUT_LABELS = frozenset({"VDD_IN", "VIN", "POM_5V_IN", "5V_IN"})
"""What makers call the input: Orin and Xavier NX, Thor, Nano and TX2, older carrier boards."""
RAIL_LOOK_NS = 50_000_000
"""A reading crosses an I2C bus and takes up to 2 ms, so at most 4 % of the time is spent on it."""
_UW_PER_MW = 1000

ReadMw = Callable[[], float | None]


def open_rails(root: Path = ROOT, clock: Clock = time.perf_counter_ns) -> PolledSource | None:
    """The power at the input of this board; `None` if it has no such sensor that can be read."""
    for read_mw in (*_hwmon_inputs(root), *_iio_inputs(root)):
        if read_mw() is not None:
            read_size_mw = seldom(partial(_size_of, read_mw), clock)
            return PolledSource(EnergyMethod.HWMON_POLLED, read_size_mw, clock)
    return None


def _size_of(read_mw: ReadMw) -> float | None:
    """A shunt that is soldered the other way round gives the current a minus."""
    power_mw = read_mw()
    return None if power_mw is None else abs(power_mw)


def seldom(read_mw: ReadMw, clock: Clock) -> ReadMw:
    """Reads at most every `LOOK_NS`; in between it returns the last value."""
    last: tuple[int, float | None] | None = None

    def read() -> float | None:
        nonlocal last
        now = clock()
        if last is None or now - last[0] >= RAIL_LOOK_NS:
            last = (now, read_mw())
        return last[1]

    return read


def _hwmon_inputs(root: Path) -> Iterator[ReadMw]:
    for label in sorted((root / "sys/class/hwmon").glob("hwmon*/in[0-9]*_label")):
        if text_of(label).strip() in INPUT_LABELS:
            yield _reader(label.parent, label.name[2 : -len("_label")])


def _reader(chip: Path, number: str) -> ReadMw:
    power = chip / f"power{number}_input"
    volts, amperes = chip / f"in{number}_input", chip / f"curr{number}_input"

    def read() -> float | None:
        if (microwatts := number_of(power)) is not None:
            return microwatts / _UW_PER_MW
        mv, ma = number_of(volts), number_of(amperes)
        return None if mv is None or ma is None else mv * ma / _UW_PER_MW

    return read


def _iio_inputs(root: Path) -> Iterator[ReadMw]:
    """JetPack 4, whose driver is not the kernel's own."""
    drivers = root / "sys/bus/i2c/drivers/ina3221x"
    for name in sorted(drivers.glob("*/iio:device*/rail_name_[0-9]*")):
        if text_of(name).strip() in INPUT_LABELS:
            file = name.with_name(f"in_power{name.name.rpartition('_')[2]}_input")
            yield partial(number_of, file)
