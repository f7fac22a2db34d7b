"""Along each axis, pairs differ in it and are equal in the rest; checked by hand and by SciPy."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from fleet_rows import PLACES, write_results
from wording import has

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel import conditions
from fleetrank.analysis.panel.conditions import (
    AXES,
    Level,
    PairGroup,
    axis_pairs,
    compared,
    directed_pairs,
    pair_group,
    sampled,
    tier_groups,
    unlisted,
)
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import TABLES, make_table
from fleetrank.foundation.vocabulary import Axis, words_of

N_MODELS = 7
VALUES = {
    Axis.RUNTIME: ("runtime", ("onnx", "tflite")),
    Axis.BACKEND: ("backend", ("cpu", "xnnpack")),
    Axis.MODE: ("mode", ("compile", "eager")),
    Axis.PRECISION: ("precision", ("fp16", "fp32")),
    Axis.THREADS: ("threads", (2, 10)),
    Axis.BATCH: ("batch", (2, 16)),
    Axis.VERSION: ("runtime_version", ("1.9.0", "2.1.0")),
    Axis.SWEEP: ("sweep_id", ("s1", "s2")),
    Axis.REPEAT: ("repeat", (0, 1)),
}


def rows_of(axis: Axis, devices: tuple[str, ...] = ("d1", "d2")) -> list[dict[str, object]]:
    """Every model on every device under both values of the axis, in random orders."""
    name, values = VALUES[axis]
    rng = np.random.default_rng(1)
    return [
        {"model": f"m{model}", "device": device,
         "latency_p50_ns": 1e6 * float(np.exp(rng.normal())),
         "flops": 100 + model, "peak_memory_bytes": 1000 + model, name: value}
        | ({"sweep_id": f"s{value}"} if axis is Axis.VERSION else {})
        | ({} if AXES[axis].is_inside_platform else {"platform_key": f"{device}/{value}"})
        for device in devices for value in values for model in range(N_MODELS)
    ]  # fmt: skip


def along(frame: pl.LazyFrame, axis: Axis, **selection: object) -> Table:
    chosen = Selection(settings=(("along", axis.value),), **selection)
    return make_table("transfer", frame, chosen)


@pytest.mark.slow
def test_a_source_narrows_every_axis(make_attempts) -> None:
    for axis in (Axis.PRECISION, Axis.SWEEP):
        frame = make_attempts(rows_of(axis))
        found = along(frame, axis, source="d1", target="d1").frame
        assert found.filter(pl.col("n_pairs") > 0)["n_pairs"].unique().to_list() == [1]


@pytest.mark.slow
def test_an_axis_without_two_values_says_what_to_measure(make_attempts) -> None:
    frame = make_attempts(rows_of(Axis.RUNTIME))
    for axis in Axis:
        if axis in {Axis.DEVICE, Axis.RUNTIME}:
            continue
        with pytest.raises(NoDataError, match=r"differ in|fewer than two|two workloads") as caught:
            along(frame, axis)
        assert "measure" in caught.value.remedy, axis


@pytest.mark.slow
def test_too_many_sweeps_and_parts_of_frm_inside_a_platform_are_refused(make_attempts) -> None:
    rows = rows_of(Axis.SWEEP, ("d1",))[:N_MODELS]
    many = [row | {"sweep_id": f"s{n:02}"} for n in range(21) for row in rows]
    with pytest.raises(AnalysisError, match="21 sweeps are too many"):
        along(make_attempts(many), Axis.SWEEP)
    full = Selection(settings=(("along", "sweep"),))
    with pytest.raises(AnalysisError, match="not between sweeps"):
        make_table("transfer/full", make_attempts(rows_of(Axis.SWEEP)), full)


def test_pairs_of_an_axis_are_those_of_a_slow_search() -> None:
    rng = np.random.default_rng(0)
    names = ("device", "runtime", "threads", "batch", "precision")
    columns = pl.DataFrame({name: rng.integers(0, 2, 40).astype(str) for name in names})
    rows, rule = columns.to_dicts(), AXES[Axis.RUNTIME]
    every = frozenset(range(40))
    slow = [
        (i, j)
        for i, j in itertools.combinations(range(40), 2)
        if [name for name in names if rows[i][name] != rows[j][name]] == ["runtime"]
    ]
    assert axis_pairs(columns, rule, every, every) == slow
    upper = frozenset(range(20, 40))
    turned = sorted((max(pair), min(pair)) for pair in slow if (pair[0] < 20) and pair[1] >= 20)
    assert axis_pairs(columns, rule, upper, every - upper) == turned


@pytest.mark.slow
def test_pairs_along_an_axis_are_made_once(make_attempts) -> None:
    session = Session(make_attempts(rows_of(Axis.PRECISION)), Selection())
    assert compared(session, Axis.PRECISION) is compared(session, Axis.PRECISION)


def test_the_option_takes_the_word_of_every_axis() -> None:
    assert TABLES["transfer"].settings["along"].words == words_of(Axis) == tuple(AXES)


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


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    places = [
        replace(place, device=f"{place.device}-{at}") for place in PLACES[::2] for at in range(10)
    ]
    results = write_results(tmp_path_factory.mktemp("fleet"), places=places, repeats=1, n_samples=2)
    return Session(load_measurements(results), Selection(seed=3))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "MAX_DIRECTED_PAIRS", 200)


@pytest.mark.slow
def test_all_pairs_of_a_small_fleet_are_used_without_a_note(session: Session) -> None:
    pairs = directed_pairs(session.panel, session.selection)
    assert len(set(pairs)) == 30 * 29
    assert sampled(session, len(pairs)) == ()
    assert has(unlisted(pairs, session), "870")


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_part_is_drawn_by_the_seed_and_holds_each_pair_once(session: Session) -> None:
    selection = session.selection
    pairs = directed_pairs(session.panel, selection)
    assert pairs == directed_pairs(session.panel, selection)
    assert pairs != directed_pairs(session.panel, replace(selection, seed=4))
    assert 180 <= len(pairs) <= 200
    assert len(set(pairs)) == len(pairs)
    assert all(i != j for i, j in pairs)
    assert has(unlisted(pairs, session), f"{len(pairs)}", "870", "seed 3", "`source=`")


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_every_pair_is_drawn_equally_often(session: Session) -> None:
    seen = np.zeros((30, 30))
    for seed in range(200):
        for pair in directed_pairs(session.panel, replace(session.selection, seed=seed)):
            seen[pair] += 1
    drawn = seen[~np.eye(30, dtype=bool)]
    assert np.diag(seen).sum() == 0
    # A count is binomial with p = 200 / 900; its standard deviation is 5.9.
    assert drawn.mean() == pytest.approx(200 * 200 / 900, rel=0.02)
    assert drawn.std() == pytest.approx(5.9, rel=0.15)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_selection_of_few_pairs_uses_all_of_them(session: Session) -> None:
    selection = replace(session.selection, source="*pixel-7-3*")
    assert len(directed_pairs(session.panel, selection)) == 29
