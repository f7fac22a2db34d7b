"""Power of a whole board from the sensor at its input, where the maker built one in.

Only the input is read: a sum of rails counts some power twice and misses the rest (jetson_stats
issue 51).

Source: NVIDIA Jetson Linux Developer Guide, "Power and Performance", INA3221 and INA238;
Documentation/hwmon/sysfs-interface.rst of the Linux kernel: `inN_input` in mV, `currN_input` in mA,
`powerN_input` in microwatts. JetPack 4: `in_powerN_input` in mW.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fleetrank.device_agents.linux.conditions import ROOT
from fleetrank.device_agents.linux.energy import PolledSource
from fleetrank.device_agents.linux.worker_process import number_of, text_of
from fleetrank.device_agents.timing import Clock
from fleetrank.foundation.vocabulary import EnergyMethod

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
