from collections.abc import Callable
from dataclasses import replace

import pytest

from fleetrank.device_agents.android.state.cores import Core
from fleetrank.device_agents.android.state.dumpsys import Battery, Thermal
from fleetrank.device_agents.android.state.fitness import (
    CanaryReading,
    PhoneRules,
    Verdict,
    judge_readiness,
    judge_validity,
)
from fleetrank.device_agents.android.state.phone_conditions import (
    PhoneConditions,
    conditions_of_sections,
    to_conditions,
)
from fleetrank.device_agents.android.state.waits import Clock, wait_until_ready
from fleetrank.device_agents.errors import StoppedError, UnfitConditionsError
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
BLIND = PhoneConditions(
    battery=None, thermal=None, cores=(), is_screen_on=None, load_1min=None,
    available_memory_bytes=None, boot_id=None,
)  # fmt: skip
CAPPED = (Core(number=0, max_khz=2_000_000, cap_khz=1_600_000, now_khz=300_000),)
HOT = replace(COOL, battery=Battery(percent=80.0, temp_c=37.1, is_charging=True))
RULES = PhoneRules()


def battery(percent: float, is_charging: bool | None) -> PhoneConditions:
    return replace(COOL, battery=Battery(percent=percent, temp_c=30.0, is_charging=is_charging))


@pytest.mark.parametrize(
    ("seen", "verdict", "part"),
    [
        (COOL, Verdict.READY, ""),
        (BLIND, Verdict.READY, ""),
        (battery(30.0, False), Verdict.READY, ""),
        (battery(29.0, True), Verdict.WAIT, "29 %"),
        (battery(29.0, False), Verdict.REFUSE, "is not charging"),
        (HOT, Verdict.WAIT, "37.1 C"),
        (replace(COOL, thermal=Thermal(status=1)), Verdict.WAIT, "thermal status"),
        (replace(COOL, thermal=Thermal(status=0, is_overridden=True)), Verdict.REFUSE, "Override"),
        (replace(HOT, thermal=Thermal(status=0, is_overridden=True)), Verdict.REFUSE, "Override"),
        (replace(COOL, battery=Battery(is_overridden=True)), Verdict.REFUSE, "UPDATES STOPPED"),
        (replace(COOL, cores=CAPPED), Verdict.WAIT, "80 %"),
    ],
)
def test_each_state_has_its_verdict(seen: PhoneConditions, verdict: Verdict, part: str) -> None:
    found = judge_readiness(seen, RULES)
    assert found.verdict is verdict
    assert part in found.reason
    assert bool(found.remedy) is (verdict is not Verdict.READY)


def test_rules_can_be_widened() -> None:
    rules = PhoneRules(max_battery_temp_c=40.0, min_cap_share=0.5, max_thermal_status=1)
    seen = replace(HOT, cores=CAPPED, thermal=Thermal(status=1))
    assert judge_readiness(seen, rules).verdict is Verdict.READY


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.clock = Clock(now_ns=lambda: int(self.now_s * 1e9), sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


def cooling_after(fake: FakeTime, seconds: float) -> Callable[[], PhoneConditions]:
    return lambda: COOL if fake.now_s >= seconds else HOT


def test_a_hot_phone_is_waited_for_until_it_is_cool() -> None:
    fake = FakeTime()
    seen = wait_until_ready(cooling_after(fake, 25.0), RULES, clock=fake.clock)
    assert seen is COOL
    assert 25.0 <= fake.now_s <= 35.0


def test_the_wait_has_a_limit_and_says_why() -> None:
    fake = FakeTime()
    with pytest.raises(UnfitConditionsError, match=r"after 600 s.*37\.1 C"):
        wait_until_ready(lambda: HOT, RULES, clock=fake.clock)
    assert 600.0 <= fake.now_s <= 601.0


def test_what_waiting_cannot_change_is_not_waited_for() -> None:
    fake = FakeTime()
    with pytest.raises(UnfitConditionsError, match="is not charging"):
        wait_until_ready(lambda: battery(10.0, False), RULES, clock=fake.clock)
    assert fake.now_s == 0.0


def test_the_user_can_end_the_wait() -> None:
    fake = FakeTime()
    with pytest.raises(StoppedError):
        wait_until_ready(
            lambda: HOT, RULES, stop_requested=lambda: fake.now_s > 3.0, clock=fake.clock
        )
    assert fake.now_s < 4.0


def test_a_repeat_under_equal_conditions_counts() -> None:
    steady = [100, 101] * 30
    found = judge_validity(COOL, COOL, RULES, samples_ns=steady, canary=CanaryReading(ratio=1.02))
    assert (found.is_valid, found.flags) == (True, ())
    assert judge_validity(BLIND, BLIND, RULES).is_valid


@pytest.mark.parametrize(
    ("after", "part", "flags"),
    [
        (replace(COOL, cores=CAPPED), "fell to 80 %", (Flag.THROTTLED,)),
        (replace(COOL, thermal=Thermal(status=2)), "rose to 2", (Flag.THROTTLED,)),
        (replace(COOL, boot_id="b2"), "restarted", ()),
    ],
)
def test_a_change_for_the_worse_makes_a_repeat_invalid(
    after: PhoneConditions, part: str, flags: tuple[Flag, ...]
) -> None:
    found = judge_validity(COOL, after, RULES)
    assert not found.is_valid
    assert part in found.reasons[0]
    assert found.flags == flags


def test_a_warm_battery_at_the_end_is_flagged_and_still_counts() -> None:
    found = judge_validity(COOL, HOT, RULES)
    assert (found.is_valid, found.flags) == (True, (Flag.HOT,))


def test_a_drift_over_the_run_makes_it_invalid() -> None:
    found = judge_validity(COOL, COOL, RULES, samples_ns=range(1000, 1600, 10))
    assert not found.is_valid
    assert found.flags == (Flag.DRIFT,)


def test_a_few_runs_that_scatter_have_not_drifted() -> None:
    assert judge_validity(COOL, COOL, RULES, samples_ns=range(1000, 1290, 10)).is_valid


def test_the_canary_is_judged_by_the_phones_own_noise() -> None:
    def is_valid(ratio: float, spread: float | None) -> bool:
        canary = CanaryReading(ratio=ratio, spread=spread)
        return judge_validity(COOL, COOL, RULES, canary=canary).is_valid

    assert not is_valid(1.11, None)
    assert not is_valid(0.85, 0.01)
    assert is_valid(1.11, 0.05)
    assert not is_valid(1.16, 0.05)


def test_a_row_stores_the_hottest_sensor_and_the_cap() -> None:
    stored = to_conditions(replace(COOL, cores=CAPPED), canary_ns=5)
    assert (stored.temp_c, stored.clock_cap_mhz, stored.clock_max_mhz) == (40.0, 1600.0, 2000.0)
    assert (stored.battery_percent, stored.is_charging, stored.canary_ns) == (80.0, True, 5)
    assert to_conditions(BLIND).temp_c is None


def test_a_phone_that_tells_nothing_has_no_conditions() -> None:
    assert conditions_of_sections({}) == BLIND
