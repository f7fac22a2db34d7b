"""Pairs that FLOPs order wrongly, against counting them one by one."""

import itertools

import numpy as np
import pytest

from fleetrank.analysis.arrays.bootstrap import resample_counts
from fleetrank.analysis.statistics.ranks.wrong_pairs import wrong_pairs, wrong_share
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table


def counted(flops: np.ndarray, values: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """Wrong and all pairs, each as often as both of its models are drawn."""
    wrong = known = 0.0
    for column in values.T:
        rows = [at for at in range(flops.size) if np.isfinite(column[at]) and flops[at] > 0]
        if len(rows) < 5:
            continue
        for a, b in itertools.combinations(rows, 2):
            weight = times[a] * times[b]
            known += weight
            if flops[a] == flops[b] or column[a] == column[b]:
                wrong += weight / 2
            elif (flops[a] < flops[b]) != (column[a] < column[b]):
                wrong += weight
    return wrong, known


def test_the_share_is_that_of_counting() -> None:
    rng = np.random.default_rng(3)
    flops = rng.integers(1, 9, 12).astype(float)
    flops[2] = np.nan
    values = rng.integers(1, 30, (12, 4)).astype(float)
    values[rng.random((12, 4)) < 0.2] = np.nan
    values[4:, 3] = np.nan
    wrong, known = wrong_pairs(flops, values)
    counts = np.vstack([np.ones(12), resample_counts(12, 20, rng)])
    expected = [counted(flops, values, times) for times in counts]
    shares = [one / every for one, every in expected]
    assert wrong_share(wrong, known, counts) == pytest.approx(shares, abs=1e-12)
    assert known.sum() / 2 == expected[0][1]


@pytest.mark.slow
def test_decisions_stand_beside_cases_with_their_interval(make_grid) -> None:
    flops = list(range(1, 11))
    swapped = [2, 1, *range(3, 11)]
    frame = make_grid({"d1": flops, "d2": swapped}, flops=flops, memory=[1] * 10)
    latency, _ = make_table("flops", frame, Selection()).frame.to_dicts()
    assert (latency["n_pairs"], latency["cases"]) == (90, 0)
    assert latency["wrong_share"] == pytest.approx(1 / 90)
    assert 0 == latency["wrong_low"] < 1 / 90 < latency["wrong_high"]
    few = make_table("flops", make_grid({"d1": flops[:8]}, flops=flops[:8]), Selection()).frame
    assert few["wrong_low"].null_count() == few.height
