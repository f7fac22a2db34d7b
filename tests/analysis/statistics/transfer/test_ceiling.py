"""Table `trust` with `part=ceiling` on frames made by hand."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer import rank_reliability
from fleetrank.analysis.statistics.transfer.rank_reliability import splits_for
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow

N_MODELS = 12


def rows_of(devices, *, noise=0.3, repeats=4, n_models=N_MODELS, **facts):
    """Repeats of every model on every device; the device's number seeds its own ranking."""
    rng = np.random.default_rng(5)
    shared = rng.normal(size=n_models)
    rows = []
    for number, device in enumerate(devices):
        own = shared + 0.3 * np.random.default_rng(number).normal(size=n_models)
        for repeat in range(repeats):
            for model in range(n_models):
                latency = 1e6 * np.exp(own[model] + noise * rng.normal())
                rows.append(
                    {"model": f"m{model:02}", "device": device, "repeat": repeat,
                     "latency_p50_ns": latency, "flops": 10 + model,
                     "peak_memory_bytes": 1000 + model, "accuracy_top1": 50.0 + model, **facts}
                )  # fmt: skip
    return rows


def shown(frame: pl.LazyFrame, **selection) -> Table:
    return make_table("trust/ceiling", frame, Selection(**selection))


def find(table: Table, level: str, measure: str) -> list[dict[str, object]]:
    return table.frame.filter(pl.col("level") == level, pl.col("measure") == measure).to_dicts()


@pytest.mark.thorough
def test_ceiling_is_the_root_of_both_reliabilities_and_the_share_is_of_it(make_attempts) -> None:
    table = shown(make_attempts(rows_of(["d1", "d2"])))
    (pair,) = find(table, "pair", "latency")
    first, second = find(table, "platform", "latency")
    assert (pair["reliability_source"], pair["reliability_target"]) == (
        first["figure"], second["figure"]
    )  # fmt: skip
    assert pair["ceiling"] == pytest.approx(np.sqrt(first["figure"] * second["figure"]))
    assert pair["share_of_ceiling"] == pytest.approx(pair["figure"] / pair["ceiling"])
    assert pair["method"] == "split repeats"
    assert 0.5 < pair["ceiling"] < 1
    (tier,) = find(table, "tier", "latency")
    assert tier["ceiling"] == pytest.approx(pair["ceiling"])


def test_the_reliability_of_a_platform_is_computed_once(make_attempts, monkeypatch) -> None:
    asked: list[tuple[str, int]] = []
    computed = rank_reliability._reliability

    def counted(of, models, column):
        asked.append((of.measure.name, column))
        return computed(of, models, column)

    monkeypatch.setattr(rank_reliability, "_reliability", counted)
    shown(make_attempts(rows_of(["d1", "d2", "d3"])))
    assert sorted(asked) == [(name, column) for name in ("frm", "latency") for column in range(3)]


def test_one_repeat_gives_no_ceiling_and_says_why(make_attempts) -> None:
    table = shown(make_attempts(rows_of(["d1", "d2"], repeats=1)))
    (pair,) = find(table, "pair", "latency")
    assert pair["figure"] is not None
    assert (pair["ceiling"], pair["share_of_ceiling"]) == (None, None)
    assert pair["reason"].startswith("no ceiling")
    for row in find(table, "platform", "latency"):
        assert row["figure"] is None
        assert row["reason"].startswith("0 models with 2 repeats or more, at least 5 needed")
    (tier,) = find(table, "tier", "frm")
    assert tier["ceiling"] is None
    assert tier["reason"] is not None


def test_pairs_of_sweeps_serve_where_there_is_one_repeat(make_attempts) -> None:
    old = rows_of(["d1", "d2"], repeats=1, sweep_id="s1", started_utc=1)
    new = [
        row | {"sweep_id": "s2", "started_utc": 9, "latency_p50_ns": row["latency_p50_ns"] * f}
        for row, f in zip(
            old, np.exp(0.4 * np.random.default_rng(8).normal(size=len(old))), strict=True
        )
    ]
    frame = make_attempts([*old, *new])
    table = shown(frame)
    series = {
        (sweep, device): [row["latency_p50_ns"] for row in rows if row["device"] == device]
        for sweep, rows in (("s1", old), ("s2", new))
        for device in ("d1", "d2")
    }
    for row, device in zip(find(table, "platform", "latency"), ("d1", "d2"), strict=True):
        rho = stats.spearmanr(series["s1", device], series["s2", device]).statistic
        assert row["figure"] == pytest.approx(rho)
        assert (row["method"], row["low"]) == ("pairs of sweeps", None)
        # No model has two repeats, but the sweeps compare all of them.
        assert row["n_models"] == N_MODELS
    (pair,) = find(table, "pair", "latency")
    assert pair["method"] == "pairs of sweeps"
    only = shown(frame, sweep="s2")
    assert find(only, "platform", "latency")[0]["figure"] is None


def test_repeats_hold_the_newest_sweep_and_the_last_valid_attempt(make_attempts) -> None:
    rows = rows_of(["d1"], repeats=2, n_models=5)
    retried = [
        rows[0] | {"status": "failed", "latency_p50_ns": None},
        rows[0] | {"attempt": 1, "latency_p50_ns": 77.0},
        *rows[1:],
    ]
    session = Session(make_attempts(retried), Selection())
    panel, repeats = session.panel, session.repeats
    assert repeats.processes.shape == (3, 5, 1, 2)
    assert repeats.processes[0, 0, 0, 0] == 77
    np.testing.assert_allclose(np.median(repeats.processes[0], axis=2), panel.latency)


def test_one_platform_has_a_reliability_without_any_pair(make_attempts) -> None:
    table = shown(make_attempts(rows_of(["d1"])))
    assert set(table.frame["level"]) == {"platform"}
    assert find(table, "platform", "latency")[0]["figure"] is not None


def test_frms_figure_never_stands_without_its_null(make_attempts) -> None:
    table = shown(make_attempts(rows_of(["d1", "d2"])))
    for row in [*find(table, "pair", "frm"), *find(table, "tier", "frm")]:
        assert row["null_mean"] is not None
        assert row["null_p95"] is not None


def test_notes_say_that_one_session_is_an_upper_bound(make_attempts) -> None:
    notes = shown(make_attempts(rows_of(["d1", "d2"]))).explanation
    assert any("upper bound" in note for note in notes)


def test_figures_do_not_depend_on_other_platforms(make_attempts) -> None:
    rows = rows_of(["d1", "d2", "d3"])
    two = [row for row in rows if row["device"] != "d3"]
    reliability = find(shown(make_attempts(rows)), "platform", "latency")
    assert reliability[:2] == find(shown(make_attempts(two)), "platform", "latency")


@pytest.mark.thorough
def test_tier_ceiling_ignores_pairs_without_a_rho_and_misses_where_one_has_none(
    make_attempts,
) -> None:
    two = rows_of(["d1", "d2"])
    stranger = [row | {"model": f"x{row['model']}"} for row in rows_of(["d3"])]
    (alone,), (beside,) = (
        find(shown(make_attempts(rows)), "tier", "latency") for rows in (two, [*two, *stranger])
    )
    assert beside["ceiling"] == pytest.approx(alone["ceiling"])
    once = [*two, *rows_of(["d3"], repeats=1)]
    (row,) = find(shown(make_attempts(once)), "tier", "latency")
    assert (row["ceiling"], row["reason"]) == (None, "no ceiling: 2 of 3 pairs have none")


@pytest.mark.parametrize(
    ("n_platforms", "n_repeats", "splits"),
    [(3, 5, 200), (50, 60, 200), (50, 120, 100), (51, 60, 50), (256, 310, 10), (256, 10**6, 10)],
)
def test_many_repeats_are_split_less_often(n_platforms: int, n_repeats: int, splits: int) -> None:
    assert splits_for(n_platforms, n_repeats) == splits
