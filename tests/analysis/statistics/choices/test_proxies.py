"""Choosing devices on matrices of agreement small enough to see through."""

import math

import numpy as np

from fleetrank.analysis.statistics.choices.proxies import leave_one_out, typical_rho

NAN = math.nan
RHO = np.array(
    [
        [NAN, 0.95, 0.90, 0.2],
        [0.95, NAN, 0.60, 0.3],
        [0.90, 0.60, NAN, 0.1],
        [0.2, 0.3, 0.1, NAN],
    ]
)


def test_a_source_counts_by_the_median_of_its_targets() -> None:
    assert typical_rho(RHO).tolist() == [0.90, 0.60, 0.60, 0.2]


def test_a_left_out_device_neither_chooses_nor_is_chosen() -> None:
    folds = leave_one_out(RHO, np.arange(4))
    # Without 0: medians over the rest are 0.45, 0.35, 0.2, so 1 is chosen.
    assert [(fold.left_out, fold.chosen, fold.rho) for fold in folds] == [
        (0, 1, 0.95), (1, 0, 0.95), (2, 1, 0.6), (3, 0, 0.2)
    ]  # fmt: skip
    assert {fold.chosen for fold in leave_one_out(RHO, np.array([2, 3]))} == {2, 3}
