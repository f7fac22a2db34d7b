"""The table of frontiers beyond two exact objectives."""

import numpy as np
import polars as pl
import pytest
from wording import has

from fleetrank.analysis.arrays.bootstrap import resample_counts
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frontiers.frontier_intervals import resampled_overlaps
from fleetrank.analysis.statistics.frontiers.pair_frontiers import (
    Objective,
    by_flops,
    make_objectives,
    parse_objectives,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table


def rows_of(frame: pl.LazyFrame, level: str = "pair", **selection: object) -> list[dict]:
    table = make_table("frontier", frame, Selection(**selection))  # type: ignore[arg-type]
    return [row for row in table.frame.to_dicts() if row["level"] == level]


@pytest.mark.slow
def test_shapes_by_hand(make_grid) -> None:
    # On d1 the frontier is m0 and m2; on d2 all three, m1 between them.
    frame = make_grid(
        {"d1": [1, 9, 8, 10], "d2": [1, 2, 4, 5]}, accuracy=[60, 70, 80, 60], flops=[1, 2, 3, 4]
    )
    (row,) = rows_of(frame, source="d1")
    assert (row["n_source"], row["n_target"]) == (2, 3)
    # Up to (5 ns, 60 %) on d2: m1 adds 3 x 10, m2 1 x 20, both 1 x 10; m0 has the worst accuracy.
    assert row["hypervolume_ratio"] == pytest.approx(20 / 40)
    # m1 is reached from m2 by (4 - 2) / 4 of the latencies' range, or (70 - 60) / 20 from m0.
    assert row["epsilon_share"] == pytest.approx(0.5)
    # Factor 2 in latency from m2; 70 / 60 in accuracy from m0, which is less.
    assert row["epsilon_factor"] == pytest.approx(70 / 60)


def repeated(make_attempts, spread: float, repeats: int = 5) -> pl.LazyFrame:
    latencies = {"d1": [1.0, 2, 2.1, 9, 9], "d2": [1.0, 2.1, 2, 9, 9]}
    accuracy = [60.0, 80, 80, 50, 50]
    return make_attempts(
        {"model": f"m{i}", "device": device, "repeat": repeat, "accuracy_top1": accuracy[i],
         "flops": i + 1, "latency_p50_ns": latency * (1 + spread * (repeat - 2))}
        for device, series in latencies.items()
        for i, latency in enumerate(series)
        for repeat in range(repeats)
    )  # fmt: skip


@pytest.mark.slow
def test_what_lies_within_the_noise_is_not_dominated(make_attempts) -> None:
    (quiet,) = rows_of(repeated(make_attempts, 0.001), source="d1")
    assert (quiet["precision"], quiet["noisy_precision"]) == (0.5, 0.5)
    (noisy,) = rows_of(repeated(make_attempts, 0.04), source="d1")
    assert (noisy["precision"], noisy["noisy_precision"]) == (0.5, 1)
    assert (noisy["noisy_n_source"], noisy["noisy_n_target"]) == (3, 3)


@pytest.mark.slow
def test_fewer_than_five_repeats_have_no_noise_and_say_so(make_attempts) -> None:
    for level in ("pair", "tier"):
        (row,) = rows_of(repeated(make_attempts, 0.04, repeats=4), level, source="d1")
        assert row["noisy_precision"] is None
        assert has(row["reason"], "noisy_*", "5", "repeats")


@pytest.mark.slow
def test_memory_has_noise_and_energy_none(make_attempts) -> None:
    # m1 takes less memory than m0, though not in every process; both cost equal energy.
    frame = make_attempts(
        {"model": f"m{i}", "device": device, "repeat": repeat, "accuracy_top1": 70, "flops": 1,
         "latency_p50_ns": 1.0, "peak_memory_bytes": 100 - 2 * i + repeat, "energy_mj": 1.0}
        for device in ("d1", "d2")
        for i in range(2)
        for repeat in range(5)
    )  # fmt: skip
    (row,) = rows_of(frame, source="d1", settings=(("objectives", "accuracy,memory"),))
    assert (row["n_target"], row["noisy_n_target"]) == (1, 2)
    (row,) = rows_of(frame, source="d1", settings=(("objectives", "accuracy,energy"),))
    assert (row["n_target"], row["noisy_n_target"]) == (2, None)
    assert has(row["reason"], "noise", "energy")


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [4, 5, 8])
def test_noise_is_the_interval_that_the_latency_table_shows(make_attempts, repeats: int) -> None:
    values = [float((7 * n) % 17 + 1) for n in range(repeats)]
    frame = make_attempts({"repeat": n, "latency_p50_ns": one} for n, one in enumerate(values))
    shown = make_table("latency", frame, Selection()).frame.row(0, named=True)
    names = (Objective.LATENCY, Objective.MEMORY)
    low, high = make_objectives(Session(frame, Selection()), names, np.zeros(1)).bounds
    if repeats < 5:
        assert shown["latency_low_ms"] is None
        assert np.isnan([low, high]).all()
        return
    ends = [one[0, 0, 0] / 1e6 for one in (low, high)]
    assert ends == pytest.approx([shown["latency_low_ms"], shown["latency_high_ms"]])


@pytest.mark.slow
def test_missing_objectives_are_counted(make_grid) -> None:
    frame = make_grid({"d1": [1, 2], "d2": [1, 2]}, accuracy=[70, 70], memory=[0, 3])
    selection = Selection(settings=(("objectives", "accuracy,memory"),))
    table = make_table("frontier", frame, selection)
    assert has(table.notes, "Dropped", "2", "4", "0")
    assert set(table.frame["n_models"]) == {1}


@pytest.mark.slow
def test_tiers_average_pairs_of_device_models(make_grid) -> None:
    # Two units of one edge model agree with the source, the single other one does not.
    facts, slow = {"tier": "edge", "device_model": "phone"}, [7, 8, 9]
    frame = make_grid(
        {"g": [1, 2, *slow], "p1": [1, 2, *slow], "p2": [1, 2, *slow], "q": [2, 1, *slow]},
        accuracy=[60, 70, 50, 50, 50],
        g={"tier": "gpu"}, p1=facts, p2=facts, q={"tier": "edge"},
    )  # fmt: skip
    (row,) = rows_of(frame, "tier", source="g")
    assert (row["n_pairs"], row["n_clusters"]) == (3, 2)
    # Precision 1, 1 and 1/2; inside the phones first.
    assert row["precision"] == pytest.approx(0.75)
    assert row["precision_low"] is None
    assert has(row["reason"], "no interval", "5 models")


GPU, EDGE = {"tier": "gpu"}, {"tier": "edge"}


@pytest.mark.slow
def test_a_mean_leaves_out_pairs_with_few_models_and_says_so(make_grid) -> None:
    series = list(range(1, 10))
    frame = make_grid(
        {"g": series, "all": series, "five": series[:5], "two": series[:2]},
        accuracy=[50 + n for n in series], g=GPU, all=EDGE, five=EDGE, two=EDGE,
    )  # fmt: skip
    (row,) = rows_of(frame, "tier", source="g")
    assert (row["n_models"], row["n_pairs"], row["chance_precision"]) == (9, 1, 1)
    assert has(row["reason"], "left out", "2 pairs", "fewer than 9")
    (row,) = rows_of(frame, "tier", source="g", target="two")
    assert (row["n_pairs"], row["precision"]) == (0, None)
    assert has(row["reason"], "2 models", "5 needed")


@pytest.mark.slow
def test_the_interval_counts_members_of_the_frontiers_in_resamples(make_grid) -> None:
    rng = np.random.default_rng(1)
    series = {name: rng.permutation(np.arange(1.0, 13)) for name in "gpq"}
    accuracy = np.sort(rng.uniform(50, 80, 12))
    frame = make_grid(series, accuracy=accuracy.tolist(), g=GPU, p=EDGE, q=EDGE)
    session = Session(frame, Selection())
    values = make_objectives(session, parse_objectives("accuracy,latency"), np.zeros(12)).values
    columns = [session.panel.keys.index(key) for key in sorted(session.panel.keys)]
    source, *targets = columns
    weights = np.array([0.25, 0.75])
    pairs = [(source, target) for target in targets]
    found = resampled_overlaps(values, pairs, weights, 50, np.random.default_rng(7))

    def members(column: int) -> set[int]:
        points = values[:, column]
        return {
            at for at, one in enumerate(points)
            if not any((other <= one).all() and (other < one).any() for other in points)
        }  # fmt: skip

    counts = resample_counts(12, 50, np.random.default_rng(7))
    for draw, times in enumerate(counts.tolist()):
        for figure, of in enumerate((lambda s, _: [s], lambda _, t: [t], lambda s, t: [s, t])):
            shares = []
            for target in targets:
                s, t = members(source), members(target)
                sides = of(s, t)
                whole = sum(times[at] for side in sides for at in side) / len(sides)
                shares.append(sum(times[at] for at in s & t) / whole if whole else np.nan)
            known = np.isfinite(shares)
            if not known.any():
                assert np.isnan(found[figure, draw])
                continue
            expected = (np.array(shares)[known] @ weights[known]) / weights[known].sum()
            assert found[figure, draw] == pytest.approx(expected, abs=1e-12)
    (row,) = rows_of(frame, "tier", source="g")
    assert row["precision_low"] < row["precision"] < row["precision_high"]
    assert row["recall_low"] < row["recall"] < row["recall_high"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accuracy,latancy", "did you mean 'latency'"),
        ("accuracy", "two or more different"),
        ("latency,latency", "two or more different"),
    ],
)
def test_objectives_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        parse_objectives(text)


def test_flops_stand_for_all_that_is_measured() -> None:
    names = parse_objectives("latency,accuracy,memory,energy")
    assert by_flops(names) == ("flops", "accuracy")
