import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleetrank.analysis.arrays.known_means import known_mean
from fleetrank.analysis.panel import conditions
from fleetrank.analysis.panel.conditions import Level, pair_group
from fleetrank.analysis.statistics.prediction.predictability import (
    error_intervals,
    family_masks,
    group_errors,
    predictions,
)

FAMILIES = family_masks(["cnn"] * 5 + ["vit"] * 2 + [None])
PAIRS = list(itertools.permutations(range(4), 2))
CLUSTERS = [f"{i % 2} -> {j % 2}" for i, j in PAIRS]

latencies = hnp.arrays(np.float64, (8, 4), elements=st.one_of(st.integers(1, 20).map(float),
                                                              st.just(np.nan)))  # fmt: skip


def test_families_are_sorted_and_a_missing_one_is_named() -> None:
    assert list(FAMILIES) == ["cnn", "not stated", "vit"]
    assert FAMILIES["vit"].tolist() == [False] * 5 + [True] * 2 + [False]


@pytest.mark.slow
@settings(deadline=None)
@given(latencies, st.booleans())
def test_a_group_averages_clusters_first(values: np.ndarray, one_cluster_at_a_time: bool) -> None:
    logs = np.log(values)
    group = pair_group(Level.TIER, ("edge", "edge"), PAIRS, CLUSTERS, is_directed=True)
    with pytest.MonkeyPatch.context() as patch:
        if one_cluster_at_a_time:
            patch.setattr(conditions, "_MAX_VALUES", 1)
        found = group_errors(logs, group, FAMILIES)
    errors = predictions(logs, PAIRS, []).errors
    by_cluster = np.column_stack(
        [
            known_mean(errors[:, [at for at, one in enumerate(CLUSTERS) if one == name]], 1)
            for name in sorted(set(CLUSTERS))
        ]
    )
    by_model = known_mean(by_cluster, 1)
    means = np.array([known_mean(by_model[mask], 0) for mask in FAMILIES.values()])
    np.testing.assert_allclose(found.by_model, by_model)
    np.testing.assert_allclose(found.mean, [*means, known_mean(means, 0)])
    assert found.counts.n_pairs == np.isfinite(errors).any(axis=0).sum()
    assert found.counts.n_clusters == np.isfinite(by_cluster).any(axis=0).sum()


def test_intervals_from_nine_models_on_hold_the_mean() -> None:
    families = family_masks(["cnn"] * 9 + ["vit"] * 3)
    errors = np.random.default_rng(0).uniform(0, 1, 12)
    cnn, vit, both = error_intervals(errors, families, 500, np.random.default_rng(1))
    assert vit is None
    assert cnn is not None
    assert both is not None
    assert cnn[0] < errors[:9].mean() < cnn[1]
    assert both[0] < (errors[:9].mean() + errors[9:].mean()) / 2 < both[1]


@pytest.mark.slow
def test_an_interval_agrees_with_resampling_one_by_one() -> None:
    errors = np.random.default_rng(0).exponential(size=30)
    interval, _ = error_intervals(
        errors, family_masks(["cnn"] * 30), 4000, np.random.default_rng(1)
    )
    rng = np.random.default_rng(2)
    means = [rng.choice(errors, 30).mean() for _ in range(4000)]
    assert interval == pytest.approx(np.quantile(means, [0.025, 0.975]), rel=0.05)
