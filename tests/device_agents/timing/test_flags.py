from dataclasses import replace

import pytest

from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.flags import Seen, judge
from fleetrank.foundation.vocabulary import Flag

STEADY = (100,) * 100
CALM = Seen(
    samples_ns=STEADY,
    is_warmup_stable=True,
    involuntary_switches=0,
    niceness=0,
    before=Conditions(busy_share=0.0, steal_share=0.0, clock_mhz=3000.0, temp_c=40.0),
    after=Conditions(busy_share=0.0, steal_share=0.0, clock_mhz=3000.0, temp_c=50.0),
)


def after(**changes: float) -> Seen:
    assert CALM.after is not None
    return replace(CALM, after=replace(CALM.after, **changes))  # type: ignore[arg-type]


def samples(*values: int) -> Seen:
    return replace(CALM, samples_ns=values)


UNTIMED = MeasurePolicy(min_observed_s=0.0)
"""Samples of 100 ns are shorter than any time that a repeat should be watched."""


def test_a_calm_row_has_no_flag() -> None:
    assert judge(CALM, UNTIMED) == ()


def test_runs_that_were_watched_for_a_moment_only_are_too_few() -> None:
    fast = samples(*([8_000] * 25_000))
    assert judge(fast, MeasurePolicy()) == ()
    assert judge(replace(fast, samples_ns=fast.samples_ns[:-1]), MeasurePolicy()) == (Flag.TOO_FEW,)
    # Of sequences all their runs count, and not only the medians that are judged.
    assert judge(replace(CALM, observed_ns=200_000_000), MeasurePolicy()) == ()


@pytest.mark.parametrize(
    ("seen", "flags"),
    [
        (samples(*([100, 112] * 50)), [Flag.SPREAD]),
        (samples(*([100, 109] * 50)), []),
        (samples(*([100] * 94 + [500] * 6)), [Flag.OUTLIERS]),
        (samples(*([100] * 95 + [500] * 5)), []),
        (samples(*([1000] * 50 + [1030] * 50)), [Flag.DRIFT]),
        (samples(*([1000] * 50 + [1019] * 50)), []),
        (replace(CALM, involuntary_switches=11), [Flag.PREEMPTED]),
        (replace(CALM, involuntary_switches=10), []),
        (after(clock_mhz=2540.0), [Flag.THROTTLED]),
        (after(clock_mhz=2560.0), []),
        (after(temp_c=91.0), [Flag.HOT]),
        (samples(*STEADY[:99]), [Flag.TOO_FEW]),
        (samples(), [Flag.TOO_FEW]),
        (replace(CALM, niceness=1), [Flag.NICED]),
        (replace(CALM, niceness=-5), []),
        (replace(CALM, has_met_quota=True), [Flag.CPU_QUOTA]),
        (after(busy_share=0.11), [Flag.BUSY_HOST]),
        (after(steal_share=0.06), [Flag.BUSY_HOST]),
        (replace(CALM, is_warmup_stable=False), [Flag.UNSTABLE_WARMUP]),
    ],
)
def test_each_flag_is_raised_beyond_its_threshold_only(seen: Seen, flags: list[Flag]) -> None:
    assert list(judge(seen, UNTIMED)) == flags


def test_what_is_not_known_raises_no_flag() -> None:
    seen = replace(CALM, involuntary_switches=None, niceness=None, before=None, after=Conditions())
    assert judge(seen, UNTIMED) == ()


def test_a_limit_on_samples_below_the_least_runs_is_not_too_few() -> None:
    assert judge(samples(*STEADY[:50]), replace(UNTIMED, max_samples=50)) == ()
