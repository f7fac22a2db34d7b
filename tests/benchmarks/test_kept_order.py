"""The interval of a bin of probabilities comes from the differences between devices."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kept_order() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("kept_order")


def test_the_interval_of_a_bin_holds_for_devices_that_differ(kept_order) -> None:
    """Each of 6 devices keeps another share; the mean share is what was said."""
    rng = np.random.default_rng(0)
    targets, said = np.repeat(np.arange(6), 400), np.full(2400, 0.8)
    held = []
    for _ in range(300):
        shares = np.repeat(rng.normal(0.8, 0.06, 6), 400)
        found = kept_order.bin_of(targets, said, (rng.random(2400) < shares).astype(float))
        held.append(abs(found.said - found.seen) <= found.reach)
    assert np.mean(held) == pytest.approx(0.95, abs=0.04)


def test_bins_that_are_off_are_counted_beside_those_by_chance(kept_order) -> None:
    def one(seen: float, error: float, n: int = 2000):
        return kept_order.Bin(said=0.8, seen=seen, error=error, reach=2 * error, n=n)

    text = kept_order.counted([one(0.81, 0.03), one(0.85, 0.03), one(0.9, 0.03), one(0.9, 0.03, 9)])
    assert text == (
        "Of 3 bins with more than 1,000 pairs, 2 are off by more than 3 points, 1 of these inside "
        "the interval over devices; by chance alone 1.0 would be off."
    )
