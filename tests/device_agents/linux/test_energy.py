"""Energy windows: enough steps or no figure, ends on steps, wraparound, absence."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.linux.energy import (
    MIN_STEPS,
    CounterSource,
    EnergyReading,
    EnergyWindow,
    PolledSource,
    count_energy,
    judge_energy,
    open_rapl,
)
from fleetrank.foundation.vocabulary import EnergyMethod

COUNTER = EnergyMethod.NVML_COUNTER
S = 1_000_000_000


class World:
    """A device of known power whose counter moves every `period_ns`, and a clock of its own."""

    def __init__(self, power_mw: float, period_ns: int) -> None:
        self.now = 0
        self.power_mw = power_mw
        self.period_ns = period_ns

    def clock(self) -> int:
        return self.now

    def run(self) -> None:
        self.now += 1_000_000

    def counter(self) -> float:
        return self.now // self.period_ns * self.period_ns / S * self.power_mw

    def source(self) -> CounterSource:
        return CounterSource(COUNTER, self.counter)


def test_power_times_time_per_run_is_found_again() -> None:
    world = World(power_mw=300_000, period_ns=20_000_000)
    window = count_energy(world.source(), world.run, world.clock, least_s=2.0)
    assert window.is_enough
    assert window.ns >= 2 * S
    assert window.steps >= MIN_STEPS
    # 300 W over runs of 1 ms.
    assert window.mj / window.runs == pytest.approx(300, rel=0.01)
    assert window.power_mw == pytest.approx(300_000, rel=0.01)


def test_a_window_grows_until_it_has_enough_steps() -> None:
    world = World(power_mw=300_000, period_ns=150_000_000)
    window = count_energy(world.source(), world.run, world.clock, least_s=2.0)
    assert window.is_enough
    assert window.ns >= MIN_STEPS * 150_000_000


def test_a_counter_that_moves_too_seldom_gives_steps_and_no_figure() -> None:
    world = World(power_mw=300_000, period_ns=S)
    window = count_energy(world.source(), world.run, world.clock, least_s=2.0)
    assert not window.is_enough
    assert 0 < window.steps < MIN_STEPS
    energy = judge_energy(COUNTER, None, window)
    assert (energy.per_inference_mj, energy.counter_steps) == (None, window.steps)


def test_a_counter_that_stands_still_ends_by_its_limit() -> None:
    world = World(power_mw=0, period_ns=S)
    window = count_energy(world.source(), world.run, world.clock, least_s=0.5)
    assert (window.is_enough, window.steps, window.runs) == (False, 0, 0)


def test_a_counter_that_goes_away_gives_nothing() -> None:
    world = World(power_mw=1000, period_ns=20_000_000)
    gone = CounterSource(COUNTER, lambda: world.counter() if world.now < S else None)
    assert count_energy(gone, world.run, world.clock, least_s=2.0) is None
    absent = CounterSource(COUNTER, lambda: None)
    assert count_energy(absent, world.run, world.clock, least_s=2.0) is None


def test_energy_above_idle_leaves_the_idle_power_out() -> None:
    idle = EnergyWindow(mj=200_000, ns=2 * S, runs=0, steps=40, is_enough=True)
    busy = EnergyWindow(mj=600_000, ns=2 * S, runs=1000, steps=40, is_enough=True)
    energy = judge_energy(COUNTER, idle, busy)
    assert (energy.per_inference_mj, energy.idle_power_mw) == (600.0, 100_000.0)
    assert energy.above_idle_mj == pytest.approx(400.0)
    unknown = judge_energy(COUNTER, None, busy)
    assert (unknown.per_inference_mj, unknown.above_idle_mj) == (600.0, None)
    assert judge_energy(COUNTER, idle, None) is None


def feed(values: list[float | None], range_mj: float | None) -> list[EnergyReading | None]:
    supply: Iterator[float | None] = iter(values)
    source = CounterSource(COUNTER, lambda: next(supply), range_mj=range_mj)
    return [source.read() for _ in values]


def test_a_counter_that_wraps_around_goes_on() -> None:
    readings = feed([90.0, 98.0, 3.0, 3.0], 100.0)
    assert [(it.mj, it.updates) for it in readings if it] == [(0, 0), (8, 1), (13, 2), (13, 2)]


def test_a_counter_that_falls_without_a_range_was_reset() -> None:
    assert feed([90.0, 3.0], None)[1] is None


@given(st.lists(st.integers(0, 99), min_size=1, max_size=50))
def test_wrapped_steps_add_up(steps: list[int]) -> None:
    total, values = 0, [0.0]
    for step in steps:
        total += step
        values.append(float(total % 100))
    last = feed(values, 100.0)[-1]  # type: ignore[arg-type]
    assert last.mj == pytest.approx(total)
    assert last.updates == sum(step > 0 for step in steps)


def test_polled_power_is_integrated_and_says_that_it_is_polled() -> None:
    moments, powers = iter([0, S, 2 * S]), iter([100.0, 300.0, 300.0])
    source = PolledSource(EnergyMethod.NVML_POLLED, lambda: next(powers), lambda: next(moments))
    readings = [source.read() for _ in range(3)]
    assert [(it.mj, it.updates) for it in readings if it] == [(0, 0), (200, 1), (500, 1)]
    assert source.method is EnergyMethod.NVML_POLLED


def domain(root: Path, name: str, label: str, energy_uj: int, range_uj: int = 1_000_000) -> Path:
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder / "energy_uj"


def test_processor_packages_are_added_and_their_parts_are_not(tmp_path: Path) -> None:
    first = domain(tmp_path, "intel-rapl:0", "package-0", 999_000)
    second = domain(tmp_path, "intel-rapl:1", "package-1", 0)
    domain(tmp_path, "intel-rapl:0:0", "core", 5)
    domain(tmp_path, "intel-rapl:2", "psys", 5)
    rapl = open_rapl(tmp_path)
    first.write_text("4000\n")  # wrapped around at 1 J
    second.write_text("3000\n")
    reading = rapl.read()
    assert (reading.mj, reading.updates) == (8.0, 1)
    assert rapl.method is EnergyMethod.RAPL_COUNTER
    second.unlink()
    assert rapl.read() is None


def test_a_host_without_counters_has_no_energy(tmp_path: Path) -> None:
    assert open_rapl(tmp_path) is None
    (domain(tmp_path, "intel-rapl:0", "package-0", 5)).unlink()
    assert open_rapl(tmp_path) is None
