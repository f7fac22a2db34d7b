from dataclasses import replace

import pytest

from fleetrank.device_agents.android.state.dumpsys import Battery, Thermal
from fleetrank.device_agents.android.state.fitness import (
    NOTHING,
    PhoneConditions,
    PhoneRules,
    conditions_of_sections,
    judge_validity,
    to_conditions,
    why_unfit,
)
from fleetrank.device_agents.android.state.phone_cores import Core
from fleetrank.device_agents.android.state.run_clocks import RunClocks
from fleetrank.device_agents.contract.task import CanaryTask
from fleetrank.device_agents.errors import NotFitError
from fleetrank.foundation.vocabulary import Flag

COOL = PhoneConditions(
    battery=Battery(percent=80.0, temp_c=30.0, is_charging=True),
    thermal=Thermal(status=0, cpu_c=40.0),
    cores=(Core(number=0, max_khz=2_000_000, cap_khz=2_000_000, now_khz=300_000),),
    is_screen_on=True,
    load_1min=0.5,
    available_memory_bytes=10**9,
    boot_id="b1",
)
BLIND = NOTHING
CAPPED = (Core(number=0, max_khz=2_000_000, cap_khz=1_600_000, now_khz=300_000),)
HOT = replace(COOL, battery=Battery(percent=80.0, temp_c=37.1, is_charging=True))
RULES = PhoneRules()


def battery(percent: float, is_charging: bool | None) -> PhoneConditions:
    return replace(COOL, battery=Battery(percent=percent, temp_c=30.0, is_charging=is_charging))


SET_BY_HAND = Thermal(status=0, is_overridden=True)


@pytest.mark.parametrize(
    ("seen", "part"),
    [
        (COOL, None),
        (BLIND, None),
        (battery(30.0, False), None),
        (replace(COOL, cores=CAPPED), None),
        (battery(29.0, True), "29 %"),
        (battery(29.0, False), "is not charging"),
        (HOT, "37.1 C"),
        (replace(COOL, thermal=Thermal(status=1)), "thermal status"),
        (replace(HOT, thermal=SET_BY_HAND), "Override"),
        (replace(COOL, battery=Battery(is_overridden=True)), "UPDATES STOPPED"),
    ],
)
def test_each_state_is_waited_for_and_says_why(seen: PhoneConditions, part: str | None) -> None:
    found = why_unfit(seen, RULES)
    assert (found is None) is (part is None)
    if found is not None:
        assert part in found.message
        assert found.remedy
        assert (found.ask_again_s, found.limit_s) == (RULES.poll_s, RULES.max_wait_s)


def test_rules_can_be_widened() -> None:
    rules = PhoneRules(max_battery_temp_c=40.0, max_thermal_status=1)
    seen = replace(HOT, thermal=Thermal(status=1))
    assert why_unfit(seen, rules) is None


def test_a_repeat_under_equal_conditions_counts() -> None:
    steady = [100, 101] * 30
    found = judge_validity(COOL, COOL, RULES, samples_ns=steady, canary_off=None)
    assert (found.reasons, found.flags) == ((), ())
    assert not judge_validity(BLIND, BLIND, RULES).reasons


@pytest.mark.parametrize(
    ("after", "part", "flags"),
    [
        (replace(COOL, thermal=Thermal(status=2)), "rose to 2", (Flag.THROTTLED,)),
        (replace(COOL, boot_id="b2"), "restarted", ()),
    ],
)
def test_a_change_for_the_worse_makes_a_repeat_invalid(
    after: PhoneConditions, part: str, flags: tuple[Flag, ...]
) -> None:
    found = judge_validity(COOL, after, RULES)
    assert found.reasons
    assert part in found.reasons[0]
    assert found.flags == flags


FULL, LOW = COOL.cores, CAPPED


@pytest.mark.parametrize(
    ("looks", "registered_mhz", "reason"),
    [
        ((), 2000.0, None),
        ((FULL, FULL), None, None),
        ((FULL, FULL), 2000.0, None),
        # The caps of a phone at rest rise with the load.
        ((LOW, FULL, FULL), 2000.0, None),
        # Exynos 9810: 1794 of 2704 MHz are its normal cap, at rest and under load.
        ((LOW, LOW), 1600.0, None),
        ((FULL, LOW, FULL), 2000.0, "fell to 80 %"),
        ((FULL, LOW), None, "fell to 80 %"),
        ((LOW, LOW), 2000.0, "limited to 80 %"),
        ((LOW, LOW), None, None),
        ((BLIND.cores, BLIND.cores), 2000.0, None),
    ],
)
def test_only_caps_that_fell_under_load_make_a_repeat_invalid(
    looks: tuple[tuple[Core, ...], ...], registered_mhz: float | None, reason: str | None
) -> None:
    clocks = RunClocks(looks=looks, registered_cap_mhz=registered_mhz)
    found = judge_validity(COOL, COOL, RULES, clocks=clocks)
    assert (not found.reasons) is (reason is None)
    assert (Flag.THROTTLED in found.flags) is (reason is not None)
    assert reason is None or reason in found.reasons[0]


def test_a_screen_that_was_off_is_flagged() -> None:
    off = replace(COOL, is_screen_on=False)
    for before, after in ((off, COOL), (COOL, off)):
        found = judge_validity(before, after, RULES)
        assert (found.reasons, found.flags) == ((), (Flag.SCREEN_OFF,))


def test_battery_saver_that_begins_in_a_repeat_makes_it_invalid() -> None:
    off, on = replace(COOL, is_saving=False), replace(COOL, is_saving=True)
    assert judge_validity(off, on, RULES).reasons
    for unfit in (on, replace(COOL, is_dozing=True)):
        assert isinstance(why_unfit(unfit, RULES), NotFitError)


def test_caps_at_rest_say_nothing_about_a_repeat() -> None:
    assert not judge_validity(COOL, replace(COOL, cores=CAPPED), RULES).reasons


def test_a_warm_battery_at_the_end_is_flagged_and_still_counts() -> None:
    found = judge_validity(COOL, HOT, RULES)
    assert (found.reasons, found.flags) == ((), (Flag.HOT,))


def test_a_drift_over_the_run_makes_it_invalid() -> None:
    found = judge_validity(COOL, COOL, RULES, samples_ns=range(1000, 1600, 10))
    assert found.reasons
    assert found.flags == (Flag.DRIFT,)


def test_a_few_runs_that_scatter_have_not_drifted() -> None:
    assert not judge_validity(COOL, COOL, RULES, samples_ns=range(1000, 1290, 10)).reasons


def test_the_canary_is_judged_by_the_phones_own_noise() -> None:
    for ratio, spread, is_off in (
        (1.11, None, True), (0.85, 0.01, True), (1.11, 0.05, False), (1.16, 0.05, True),
    ):  # fmt: skip
        canary = CanaryTask(
            artifact_path="", artifact_sha256="", affinity=None, reference_ns=100, spread=spread,
            runs_before=False, runs_after=True,
        )  # fmt: skip
        found = canary.deviation(round(100 * ratio), RULES.min_canary_tolerance)
        assert found == (ratio if is_off else None)
    assert "1.11 times" in judge_validity(COOL, COOL, RULES, canary_off=1.11).reasons[0]


def test_a_row_stores_the_hottest_sensor_and_the_cap() -> None:
    stored = to_conditions(replace(COOL, cores=CAPPED), canary_ns=5)
    assert (stored.temp_c, stored.clock_cap_mhz, stored.clock_max_mhz) == (40.0, 1600.0, 2000.0)
    assert (stored.battery_percent, stored.is_charging, stored.canary_ns) == (80.0, True, 5)
    assert to_conditions(BLIND).temp_c is None


def test_a_phone_that_tells_nothing_has_no_conditions() -> None:
    assert conditions_of_sections({}) == BLIND


def _looks(*caps_khz: int | None) -> tuple[tuple[Core, ...], ...]:
    return tuple((Core(number=0, max_khz=2_000_000, cap_khz=cap),) for cap in caps_khz)


def test_the_time_until_a_clock_fell_is_that_of_the_first_look_below() -> None:
    looks = _looks(1_000_000, 2_000_000, None, 1_900_000, 1_000_000, 900_000)
    clocks = RunClocks(looks=looks, times_s=(0.2, 1.3, 2.4, 3.5, 4.6, 5.7))
    assert clocks.fell_after_s(0.9) == 4.6
    assert clocks.fell_after_s(0.2) is None
    assert clocks.lowest_fall == 0.45


def test_a_sustained_run_may_become_slower_and_may_not_restart() -> None:
    hot = replace(COOL, thermal=Thermal(status=3, cpu_c=70.0))
    slowed = judge_validity(COOL, hot, RULES)
    assert slowed.reasons == slowed.faults(is_sustained=False)
    assert slowed.faults(is_sustained=True) == ()
    assert Flag.THROTTLED in slowed.flags
    restarted = judge_validity(COOL, replace(hot, boot_id="b2"), RULES)
    assert restarted.faults(is_sustained=True) == ("the phone restarted",)


def test_a_phone_that_dozes_is_seen_and_only_an_id_is_a_boot_id() -> None:
    seen = conditions_of_sections({"power": "  mDeviceIdleMode=true\n", "boot": "not an id"})
    assert (seen.is_dozing, seen.boot_id) == (True, None)
    boot = "0b5d3c1e-0000-4000-8000-000000000000"
    assert conditions_of_sections({"boot": f"{boot}\n"}).boot_id == boot
