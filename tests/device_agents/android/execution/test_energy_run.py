"""Energy from looks at a phone's power: by hand, and on unplugged virtual phones."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from adb_bench import TINY_TFLITE, open_bench, phone_options
from phone_farm.battery import BUSY_MW
from phone_farm.faults import Fault

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.energy_run import energy_of, longest_energy_s
from fleetrank.device_agents.android.execution.phone_watch import Look
from fleetrank.device_agents.android.execution.program_files import file_sha256
from fleetrank.device_agents.android.state.power_text import PowerLook
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import (
    Execution,
    MeasurePolicy,
    MeasureTask,
    RepeatLimits,
)
from fleetrank.device_agents.linux.energy import MIN_STEPS
from fleetrank.foundation.vocabulary import EnergyMethod, Runtime, Status

NS = 10**9
ENERGY_S = (0.5, 2.0, 8.0)
"""A busy host takes looks late: a longer run has enough of them; one is enough."""
EMPTY = PowerLook(
    is_discharging=True, charge_uah=None, current=None, voltage_mv=None, rails_uj=None
)
MEAN_NS = 20_000_000
"""50 inferences in a second."""


def looks(see: Callable[[int], PowerLook], count: int = 31) -> Sequence[Look[PowerLook]]:
    """One look a second."""
    return [
        Look(middle_ns=second * NS, end_ns=second * NS, seen=see(second)) for second in range(count)
    ]


def test_charge_times_voltage_is_the_energy_that_left_the_battery() -> None:
    # 0.5 A at 4 V are 2 W: 40 mJ in 20 ms.
    seen = looks(lambda s: replace(EMPTY, charge_uah=3e6 - s * 500_000 / 3600, voltage_mv=4000.0))
    energy = energy_of(seen, mean_ns=MEAN_NS, least_s=2.0)
    assert energy.method is EnergyMethod.BATTERY_COUNTER
    assert energy.per_inference_mj == pytest.approx(40.0)
    assert (energy.runs, energy.window_ns, energy.counter_steps) == (1450, 29 * NS, 29)
    assert (energy.above_idle_mj, energy.idle_power_mw) == (None, None)


def test_current_times_voltage_is_integrated() -> None:
    # 400 mA and 600 mA in turn, at 4 V: 2 W in the mean.
    seen = looks(lambda s: replace(EMPTY, current=(4 + 2 * (s % 2)) * 100_000, voltage_mv=4000.0))
    energy = energy_of(seen, mean_ns=MEAN_NS, least_s=2.0)
    assert energy.method is EnergyMethod.BATTERY_POLLED
    assert energy.per_inference_mj == pytest.approx(40.0)


def test_rails_come_before_the_battery() -> None:
    seen = looks(
        lambda s: replace(
            EMPTY, rails_uj=s * 1.5e6, current=(4 + s % 2) * 100_000, voltage_mv=4000.0
        )
    )
    energy = energy_of(seen, mean_ns=MEAN_NS, least_s=2.0)
    assert (energy.method, energy.per_inference_mj) == (EnergyMethod.ODPM_COUNTER, 30.0)


def test_a_coarse_counter_gives_way_to_the_current_and_alone_gives_nothing() -> None:
    # In steps of 1 mAh a battery at 2 W moves every 7 s: 4 steps in 30 s.
    def see(s: int) -> PowerLook:
        charge_uah = (3e6 - s * 500_000 / 3600) // 1000 * 1000
        return replace(EMPTY, charge_uah=charge_uah, voltage_mv=4000.0)

    alone = energy_of(looks(see), mean_ns=MEAN_NS, least_s=2.0)
    assert (alone.method, alone.per_inference_mj) == (EnergyMethod.BATTERY_COUNTER, None)
    assert 0 < alone.counter_steps < 20
    with_current = looks(lambda s: replace(see(s), current=500_000 + s % 2))
    energy = energy_of(with_current, mean_ns=MEAN_NS, least_s=2.0)
    assert energy.method is EnergyMethod.BATTERY_POLLED
    assert energy.per_inference_mj == pytest.approx(40.0, rel=1e-4)


def corrected(second: int, *, current: int | None = None) -> PowerLook:
    """2 W, and a gauge that finds 7.5 mAh less in the battery after 15 s."""
    charge_uah = 3e6 - second * 500_000 / 3600 - 7_500 * (second > 15)
    return replace(EMPTY, charge_uah=charge_uah, voltage_mv=4000.0, current=current)


def test_a_charge_that_is_corrected_is_not_energy() -> None:
    assert energy_of(looks(corrected), mean_ns=MEAN_NS, least_s=2.0) is None
    seen = looks(lambda s: corrected(s, current=500_000 + s % 2))
    energy = energy_of(seen, mean_ns=MEAN_NS, least_s=2.0)
    assert energy.method is EnergyMethod.BATTERY_POLLED
    assert energy.per_inference_mj == pytest.approx(40.0, rel=1e-4)


@pytest.mark.parametrize(("share", "figure"), [(1.25, 40.0), (0.8, 40.0), (1.5, None), (0.6, None)])
def test_two_sources_of_one_battery_that_differ_give_no_figure(
    share: float, figure: float | None
) -> None:
    def see(s: int) -> PowerLook:
        current = round(500_000 * share) + s % 2
        return replace(
            EMPTY, charge_uah=3e6 - s * 500_000 / 3600, voltage_mv=4000.0, current=current
        )

    energy = energy_of(looks(see), mean_ns=MEAN_NS, least_s=2.0)
    assert energy.per_inference_mj == (None if figure is None else pytest.approx(figure))


def test_looks_that_were_missed_are_no_correction() -> None:
    seen = looks(
        lambda s: replace(EMPTY, charge_uah=3e6 - s * 500_000 / 3600, voltage_mv=4000.0), 45
    )
    energy = energy_of([*seen[:12], *seen[25:]], mean_ns=MEAN_NS, least_s=2.0)
    assert energy.per_inference_mj == pytest.approx(40.0)


def test_the_unit_of_the_current_is_that_of_the_phone() -> None:
    # 400 mA and 600 mA in microampere; one look at 15 mA, a number that could be 15 A.
    def see(s: int) -> PowerLook:
        current = 15_000 if s == 7 else (4 + 2 * (s % 2)) * 100_000
        return replace(EMPTY, current=current, voltage_mv=4000.0)

    energy = energy_of(looks(see), mean_ns=MEAN_NS, least_s=2.0)
    assert energy.per_inference_mj == pytest.approx(40.0, rel=0.05)


def test_a_charger_in_the_middle_ends_all_energy() -> None:
    def see(s: int) -> PowerLook:
        return replace(EMPTY, rails_uj=s * 1e6, is_discharging=s != 17)

    assert energy_of(looks(see), mean_ns=MEAN_NS, least_s=2.0) is None


def test_a_counter_that_falls_or_is_missing_once_is_no_counter() -> None:
    falls = looks(lambda s: replace(EMPTY, rails_uj=1e9 if s < 5 else s * 1e6))
    missing = looks(lambda s: replace(EMPTY, rails_uj=None if s == 9 else s * 1e6))
    assert energy_of(falls, mean_ns=MEAN_NS, least_s=2.0) is None
    assert energy_of(missing, mean_ns=MEAN_NS, least_s=2.0) is None
    assert energy_of([], mean_ns=MEAN_NS, least_s=2.0) is None
    assert energy_of(looks(lambda _s: EMPTY), mean_ns=MEAN_NS, least_s=2.0) is None


def test_the_time_of_a_repeat_has_room_for_both_runs_for_energy() -> None:
    without = replace(TASK, policy=replace(TASK.policy, energy_s=0.0))
    assert longest_energy_s(TASK, 120.0) == 2 * (TASK.limits.timeout_s + 240.0)
    assert longest_energy_s(without, 120.0) == 0.0
    agent = AndroidAgent({"serial": "x", "max_energy_s": 30.0})
    assert agent.longest_s(TASK) - agent.longest_s(without) == 2 * (TASK.limits.timeout_s + 60.0)


TASK = MeasureTask(
    task_id="sweep/cell/0/0",
    artifact_path=str(TINY_TFLITE),
    artifact_sha256=file_sha256(TINY_TFLITE),
    execution=Execution(runtime=Runtime.TFLITE, backend="xnnpack"),
    policy=MeasurePolicy(
        min_warmup_runs=2, min_warmup_s=0.0, min_runs=8, max_time_s=0.5, energy_s=0.5
    ),
    limits=RepeatLimits(timeout_s=60.0),
)


def measure(
    adb_server: AdbServer,
    folder: Path,
    profile: str,
    *,
    is_unplugged: bool,
    energy_s: float = ENERGY_S[0],
) -> Measurement:
    task = replace(TASK, policy=replace(TASK.policy, energy_s=energy_s))
    with open_bench(adb_server, folder, Path.home(), profile=profile) as bench:
        if is_unplugged:
            bench.inject(Fault.UNPLUGGED)
        options = phone_options(bench.phone.server, bench.farmed.address)
        seen = AndroidAgent({**options, "energy_look_s": 0.1}).measure(task)
    assert seen.status is Status.OK, seen.failure
    return seen


@pytest.mark.thorough
@pytest.mark.adb
@pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)
@pytest.mark.parametrize(
    ("profile", "method", "power_mw"),
    [
        ("pixel-8", EnergyMethod.ODPM_COUNTER, 0.6 * BUSY_MW),
        ("pixel-4a", EnergyMethod.BATTERY_COUNTER, BUSY_MW),
        ("galaxy-s21", EnergyMethod.BATTERY_POLLED, BUSY_MW),  # mA, dumpsys alone
        ("redmi-note-10", EnergyMethod.BATTERY_POLLED, BUSY_MW),  # positive uA, charge in mAh
    ],
)
def test_an_unplugged_phone_of_every_maker_has_its_energy(
    adb_server: AdbServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    profile: str,
    method: EnergyMethod,
    power_mw: float,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tries = []
    for energy_s in ENERGY_S:
        folder = tmp_path / f"phones{energy_s}"
        seen = measure(adb_server, folder, profile, is_unplugged=True, energy_s=energy_s)
        assert seen.summary.mean_ns is not None
        tries.append(seen.energy)
        if seen.energy is None:  # no look came in time
            continue
        figure = seen.energy.per_inference_mj
        assert (figure is None) == (seen.energy.counter_steps < MIN_STEPS)
        share = figure and figure / (power_mw * seen.summary.mean_ns / NS)
        if seen.energy.method is method and share == pytest.approx(1.0, rel=0.25):
            return
    raise AssertionError(tries)
