import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleetrank.analysis.arrays.pareto import (
    additive_epsilon,
    frontier,
    hypervolume,
    noisy_frontier,
    overlap,
)
from fleetrank.analysis.statistics.frontiers.pair_frontiers import (
    FIGURES,
    SHAPES,
    Objectives,
    pair_frontiers,
)

PAIRS = list(itertools.permutations(range(3), 2))
NAMES = ("precision", "recall", "f1", "jaccard", "chance_precision")
cells = st.one_of(st.integers(1, 6).map(float), st.just(np.nan))


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(hnp.arrays(np.float64, (7, 3, 3), elements=cells), st.integers(0, 2))
def test_figures_of_a_pair_are_those_of_its_common_models(values: np.ndarray, noise: int) -> None:
    flops = np.arange(7.0)[:, None]
    objectives = Objectives(values=values, bounds=(values, values + noise), flops=flops)
    n_models, found = pair_frontiers(objectives, PAIRS, with_shapes=True)
    for at, (i, j) in enumerate(PAIRS):
        common = np.isfinite(values[:, [i, j]]).all(axis=(1, 2))
        assert n_models[at] == common.sum()
        if not common.any():
            assert all(np.isnan(found[name][at]) for name in FIGURES)
            continue
        here = values[common, j]
        source, target = frontier(values[common, i]), frontier(here)
        plain = overlap(source, target)
        loose = overlap(
            noisy_frontier(values[common, i], values[common, i] + noise),
            noisy_frontier(here, here + noise),
        )
        by_flops = overlap(frontier(flops[common]), target)
        assert plain is not None
        assert loose is not None
        assert by_flops is not None
        assert [found[name][at] for name in NAMES] == pytest.approx(
            [getattr(plain, name) for name in NAMES]
        )
        assert found["noisy_f1"][at] == pytest.approx(loose.f1)
        assert found["flops_recall"][at] == pytest.approx(by_flops.recall)
        whole = hypervolume(here, here.max(axis=0))
        share = hypervolume(here[source], here.max(axis=0)) / whole if whole else np.nan
        assert found["hypervolume_ratio"][at] == pytest.approx(share, nan_ok=True)
        scaled = here / np.where(np.ptp(here, axis=0) > 0, np.ptp(here, axis=0), 1)
        assert found["epsilon_share"][at] == pytest.approx(
            additive_epsilon(scaled[source], scaled[target])
        )
        factor = found["epsilon_factor"][at]
        reached = (here[source][:, None] <= factor * (1 + 1e-9) * here[target][None]).all(axis=2)
        assert reached.any(axis=0).all()
        assert factor >= 1 - 1e-12


def test_an_accuracys_factor_is_its_inverse_ratio() -> None:
    # The source's frontier has 60 % where the target's has 75 % at the same cost.
    values = np.array([[[-60.0, 1], [-60, 1]], [[-75, 2], [-75, 1]]])
    values[1, 0] = [-50, 2]
    objectives = Objectives(values=values, bounds=(values, values), flops=values[:, 0, :1])
    _, found = pair_frontiers(objectives, [(0, 1)], with_shapes=True)
    assert found["epsilon_factor"][0] == pytest.approx(75 / 60)
    assert found["hypervolume_ratio"][0] != 1


def test_shapes_are_made_on_request_only() -> None:
    values = np.arange(12.0).reshape(3, 2, 2) + 1
    objectives = Objectives(values=values, bounds=(values, values), flops=values[:, 0])
    _, found = pair_frontiers(objectives, [(0, 1)], with_shapes=False)
    assert all(np.isnan(found[name][0]) for name in SHAPES)
    assert found["precision"][0] == 1
