import gc
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.timing import time_runs, warm_up

S = 1_000_000_000


class FakeClock:
    """Stands still but for what steps and readings cost."""

    def __init__(self, reading_ns: int = 0) -> None:
        self.now_ns = 0
        self.reading_ns = reading_ns

    def __call__(self) -> int:
        self.now_ns += self.reading_ns
        return self.now_ns

    def step(self, durations_ns: Callable[[int], int]) -> Callable[[], None]:
        counter = iter(range(10**9))

        def run() -> None:
            self.now_ns += durations_ns(next(counter))

        return run


class EnoughAt:
    """Satisfied from a given number of samples on."""

    def __init__(self, points: Sequence[int], enough: int) -> None:
        self.points, self.enough = points, enough

    def check_points(self) -> Iterator[int]:
        return iter(self.points)

    def is_enough(self, samples: Sequence[int]) -> bool:
        return len(samples) >= self.enough


def test_samples_are_the_steps_and_nothing_else() -> None:
    clock = FakeClock()
    timed = time_runs(clock.step(lambda i: i + 1), clock, EnoughAt([5], 5), max_time_s=1)
    assert timed.samples_ns == (1, 2, 3, 4, 5)


def test_the_rule_is_asked_at_its_check_points_only() -> None:
    clock = FakeClock()
    timed = time_runs(clock.step(lambda i: 1), clock, EnoughAt([10, 15, 23], 11), max_time_s=1)
    assert (len(timed.samples_ns), timed.stop_reason) == (15, "half_width")


def test_the_last_check_point_ends_the_runs() -> None:
    clock = FakeClock()
    timed = time_runs(clock.step(lambda i: 1), clock, EnoughAt([10, 15], 99), max_time_s=1)
    assert (len(timed.samples_ns), timed.stop_reason) == (15, "max_samples")


def test_time_ends_the_runs_before_the_first_check_point() -> None:
    clock = FakeClock()
    timed = time_runs(clock.step(lambda i: S), clock, EnoughAt([100], 1), max_time_s=2.5)
    assert (len(timed.samples_ns), timed.stop_reason) == (3, "max_time")


def test_one_run_is_timed_however_long_it_takes() -> None:
    clock = FakeClock()
    timed = time_runs(clock.step(lambda i: 9 * S), clock, EnoughAt([100], 1), max_time_s=0)
    assert timed.samples_ns == (9 * S,)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_off_inside_and_as_before_outside(is_enabled: bool) -> None:
    seen: list[bool] = []
    try:
        (gc.enable if is_enabled else gc.disable)()
        time_runs(lambda: seen.append(gc.isenabled()), FakeClock(), EnoughAt([3], 1), max_time_s=1)
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()
    assert seen == [False, False, False]


def test_an_exception_leaves_the_collector_on() -> None:
    with pytest.raises(ZeroDivisionError):
        time_runs(lambda: print(1 / 0), FakeClock(), EnoughAt([3], 1), max_time_s=1)
    assert gc.isenabled()


@pytest.mark.slow
def test_the_loop_costs_less_than_a_microsecond_per_run() -> None:
    def nothing() -> None:
        pass

    def once() -> float:
        rule = EnoughAt([10_000], 1)
        start = time.process_time_ns()
        time_runs(nothing, time.perf_counter_ns, rule, max_time_s=60)
        return (time.process_time_ns() - start) / 10_000

    # CPU time and the least of several: a busy machine only adds to what the loop itself costs.
    # With the collector off before, its one collection, which is no part of a run, is left out.
    gc.disable()
    try:
        assert min(once() for _ in range(20)) < 1_000
    finally:
        gc.enable()


def policy(**changes: float) -> MeasurePolicy:
    fields: dict[str, float] = {"min_warmup_runs": 10, "min_warmup_s": 0.5, "max_warmup_s": 10}
    return MeasurePolicy(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_steady_warm_up_lasts_half_a_second() -> None:
    clock = FakeClock()
    warm = warm_up(clock.step(lambda i: S // 100), clock, policy())
    assert (warm.runs, warm.ns, warm.is_stable) == (50, S // 2, True)


def test_a_steady_warm_up_of_long_runs_has_ten_of_them() -> None:
    clock = FakeClock()
    assert warm_up(clock.step(lambda i: S // 2), clock, policy()).runs == 10


def test_a_warm_up_goes_on_until_its_halves_agree() -> None:
    clock = FakeClock()
    warm = warm_up(clock.step(lambda i: S // 50 if i < 20 else S // 100), clock, policy())
    assert warm.is_stable
    # The first window, 20 slow runs in it, is given up after twice its least length.
    assert warm.ns == pytest.approx(1.5 * S, rel=0.01)


def test_an_unsteady_warm_up_ends_at_its_limit() -> None:
    clock = FakeClock()
    warm = warm_up(clock.step(lambda i: S // 1000 * (10 + i)), clock, policy())
    assert not warm.is_stable
    assert 10 * S <= warm.ns < 11 * S


def test_one_run_beyond_the_limit_is_the_only_one() -> None:
    clock = FakeClock()
    warm = warm_up(clock.step(lambda i: 11 * S), clock, policy())
    assert (warm.runs, warm.is_stable) == (1, False)


@pytest.mark.slow
def test_a_warm_up_of_very_many_runs_is_counted_in_full() -> None:
    clock = FakeClock()
    warm = warm_up(clock.step(lambda i: 10_000), clock, policy())
    assert (warm.runs, warm.is_stable) == (50_000, True)
