"""How often do the sets of ranks and the intervals of shares hold the truth?

`ranks`: means of models from evenly spaced to almost equal, noise with equal or unequal standard
deviations, normal or heavy-tailed. Printed is the share of cases in which all true ranks lie in
their sets at once, and the mean width of a set.

`inside`: two platforms and five families; how often rho over all models is called above rho inside
families, where families do not matter (a false alarm), and where all order is between families.

`shares`: the exact interval of a share of devices, over all true shares: its lowest coverage.

`python benchmarks/interval_coverage.py --cases 1000`; each case takes a few milliseconds.
"""

import argparse

import numpy as np
from scipy import stats

from fleetrank.analysis.arrays.bootstrap import (
    percentile_interval,
    resample_counts,
    resampled_units,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.strata import stratified_units
from fleetrank.analysis.statistics.ranks.model_ranks import rank_sets, share_interval


def effects(n: int, rng: np.random.Generator, *, is_heavy: bool) -> Floats:
    """Independent effects with variance 1."""
    drawn = rng.standard_t(5, n) / np.sqrt(5 / 3) if is_heavy else rng.standard_normal(n)
    return np.asarray(drawn)


def ranks(cases: int, n_models: int = 13, repeats: int = 5) -> None:
    """Coverage of sets of ranks."""
    print("gap, noise, tails".ljust(28), "coverage   width")
    for gap in (0.3, 0.03, 0.003):
        for is_unequal in (False, True):
            for is_heavy in (False, True):
                rng = np.random.default_rng([int(1000 * gap), is_unequal, is_heavy])
                truth = gap * np.arange(n_models)
                spread = np.geomspace(0.01, 0.1, n_models) if is_unequal else np.full(13, 0.04)
                hits, width = 0, 0.0
                for _ in range(cases):
                    noise = effects(n_models * repeats, rng, is_heavy=is_heavy)
                    mine = rng.permutation(spread)[:, None]
                    data = truth[:, None] + mine * noise.reshape(n_models, repeats)
                    errors = data.std(axis=1, ddof=1) / np.sqrt(repeats)
                    degrees = np.full(n_models, repeats - 1.0)
                    found = rank_sets(data.mean(axis=1), errors, degrees, rng)
                    true_rank = np.arange(1, n_models + 1)
                    hits += bool(((found.low <= true_rank) & (true_rank <= found.high)).all())
                    width += float((found.high - found.low + 1).mean())
                label = (
                    f"{gap:g}, {'unequal' if is_unequal else 'equal'}, "
                    f"{'heavy' if is_heavy else 'normal'}"
                )
                print(f"{label:28} {hits / cases:8.3f} {width / cases:7.2f}", flush=True)


def inside(cases: int) -> None:
    """How often rho over all models is called above rho inside families."""
    print("models, truth".ljust(28), "   above  inside     all")
    for n_models in (13, 30, 60):
        for is_between in (False, True):
            rng = np.random.default_rng([n_models, is_between])
            found = np.array([one_inside(n_models, rng, is_between) for _ in range(cases)])
            truth = "between families" if is_between else "families do not matter"
            print(f"{f'{n_models}, {truth}':28}", *(f"{f:7.3f}" for f in found.mean(axis=0)))


def one_inside(
    n_models: int, rng: np.random.Generator, is_between: bool
) -> tuple[bool, float, float]:
    """Whether it is called above, rho inside families, and rho over all models."""
    strata = rng.integers(0, 5, n_models)
    shared = 3.0 * strata if is_between else 2.0 * rng.normal(size=n_models)
    values = shared[:, None] + rng.normal(size=(n_models, 2))
    counts = np.vstack([np.ones(n_models, dtype=np.int64), resample_counts(n_models, 400, rng)])
    alike, every = (
        np.concatenate([some.prod(axis=2).sum(axis=1) for some in units])
        for units in (stratified_units(values, strata, counts), resampled_units(values, counts))
    )
    low, _ = percentile_interval((every - alike)[1:])
    return bool(low > 0), float(np.nan_to_num(alike[0])), float(every[0])


def shares() -> None:
    """Lowest coverage over true shares, computed and not drawn."""
    print("devices".ljust(28), "coverage")
    truths = np.linspace(0.001, 0.999, 999)
    for n in (3, 5, 10, 30):
        ends = np.array([share_interval(hits, n) for hits in range(n + 1)])
        held = (ends[:, :1] <= truths) & (truths <= ends[:, 1:])
        chance = stats.binom.pmf(np.arange(n + 1)[:, None], n, truths)
        print(f"{n:<28} {(held * chance).sum(axis=0).min():8.3f}")


def main() -> None:
    """Prints one line per setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    cases = parser.parse_args().cases
    ranks(cases)
    inside(cases)
    shares()


if __name__ == "__main__":
    main()
