"""Runs back to back for a given time; the clock is the test's own."""

import gc

import pytest

from fleetrank.device_agents.long_runs import time_for


class Model:
    """Each run advances the clock by the next duration; the last one repeats."""

    def __init__(self, *runs_ns: int, between_ns: int = 0) -> None:
        self.now_ns, self.n_runs, self.between_ns = 0, 0, between_ns
        self._runs_ns = runs_ns

    def run(self) -> None:
        self.now_ns += self._runs_ns[min(self.n_runs, len(self._runs_ns) - 1)]
        self.n_runs += 1

    def clock(self) -> int:
        return self.now_ns

    def before(self) -> None:
        self.now_ns += self.between_ns

    def after(self) -> None:
        assert not gc.isenabled()


def test_runs_follow_one_another_until_the_time_is_over() -> None:
    model = Model(300_000_000)
    found = time_for(model.run, model.clock, 1.0)
    assert found.runs.samples_ns == (300_000_000,) * 4
    assert (found.wall_ns, found.runs.stop_reason) == (1_200_000_000, "min_time")


def test_a_run_longer_than_the_time_is_the_only_one() -> None:
    model = Model(5_000_000_000)
    assert time_for(model.run, model.clock, 1.0).runs.samples_ns == (5_000_000_000,)


def test_work_between_runs_is_in_the_wall_time_and_in_no_sample() -> None:
    model = Model(100_000_000, between_ns=25_000_000)
    found = time_for(model.run, model.clock, 1.0, model)
    assert set(found.runs.samples_ns) == {100_000_000}
    assert found.wall_ns == 8 * 125_000_000
    assert gc.isenabled()


@pytest.mark.slow
@pytest.mark.parametrize("n", [4095, 4096, 4097, 6145, 20_000])
def test_no_run_is_lost_where_the_storage_grows(n: int) -> None:
    model = Model(*range(1000, 1000 + n))
    found = time_for(model.run, model.clock, sum(range(1000, 1000 + n)) / 1e9)
    assert found.runs.samples_ns == tuple(range(1000, 1000 + n))


def test_too_many_runs_end_at_their_limit() -> None:
    model = Model(1)
    found = time_for(model.run, model.clock, 1.0, most=5000)
    assert (len(found.runs.samples_ns), found.runs.stop_reason) == (5000, "max_samples")
    assert found.wall_ns == 5000
