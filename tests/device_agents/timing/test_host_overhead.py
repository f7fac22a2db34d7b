"""The gap between wall clock and device clock: normal within 10 % or 100 us, never negative."""

import pytest

from fleetrank.device_agents.flags import has_overhead, host_overhead_ns, is_impossible


def test_the_gap_is_the_median_of_the_pairs() -> None:
    assert host_overhead_ns([100, 110, 900], [90, 105, 300]) == 10.0


@pytest.mark.parametrize(("wall", "device"), [([], []), ([5], None), ([5, 6], [5])])
def test_without_both_clocks_there_is_no_gap(wall, device) -> None:
    assert host_overhead_ns(wall, device) is None
    assert not has_overhead(wall, None)
    assert not is_impossible(None)


@pytest.mark.parametrize(
    ("wall", "gap", "is_flagged"),
    [
        (300_000, 90_000, False), (300_000, 110_000, True),
        (5_000_000, 400_000, False), (5_000_000, 600_000, True),
    ],
)  # fmt: skip
def test_a_gap_beyond_a_tenth_and_100_us_is_flagged(wall: int, gap: int, is_flagged: bool) -> None:
    assert has_overhead([wall] * 3, float(gap)) is is_flagged


def test_a_device_cannot_take_longer_than_the_wall() -> None:
    assert is_impossible(-5_000.0)
    assert not is_impossible(-500.0)  # a step of the events' clock
