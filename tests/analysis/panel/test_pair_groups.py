from collections.abc import Callable

import polars as pl
import pytest

from fleetrank.analysis.panel.pair_groups import Level, PairGroup, pair_group, tier_groups
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection

PAIRS = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


@pytest.fixture
def panel(make_grid: Callable[..., pl.LazyFrame]) -> Panel:
    tiers = {"a": "gpu", "b": "edge", "c": "edge"}
    facts = {name: {"tier": tier, "device_model": name} for name, tier in tiers.items()}
    frame = make_grid({name: [1.0, 2.0] for name in tiers}, **facts)
    return Session(frame, Selection()).panel


def named(groups: list[PairGroup]) -> dict[tuple[str, str], set[tuple[int, int]]]:
    return {(one.source, one.target): set(one.pairs) for one in groups}


def test_with_a_direction_each_way_is_a_group_and_without_one_both_are_in_one(panel) -> None:
    assert named(tier_groups(panel, PAIRS, is_directed=True)) == {
        ("edge", "edge"): {(1, 2), (2, 1)},
        ("edge", "gpu"): {(1, 0), (2, 0)},
        ("gpu", "edge"): {(0, 1), (0, 2)},
    }
    assert named(tier_groups(panel, PAIRS[:2] + PAIRS[3:4])) == {
        ("edge", "edge"): {(1, 2)},
        ("gpu", "edge"): {(0, 1), (0, 2)},
    }


def test_pairs_of_a_cluster_are_side_by_side() -> None:
    group = pair_group(
        Level.TIER, ("gpu", "edge"), PAIRS[:4], ["b", "x", "a", "b"], is_directed=True
    )
    assert group.pairs == (PAIRS[2], PAIRS[0], PAIRS[3], PAIRS[1])
    assert group.clusters.tolist() == [0, 1, 1, 2]
    assert group.starts.tolist() == [0, 1, 3]
