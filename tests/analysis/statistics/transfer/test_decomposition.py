"""The decomposition of FRM, compared with slow and obvious versions."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from wording import has

from fleetrank.analysis.arrays.bootstrap import resample_counts
from fleetrank.analysis.arrays.ranking import average_ranks, partial_units, products, unit_columns
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.agreement import mean_figures, pair_figures
from fleetrank.analysis.panel.draws import PairBlock, block_resamples, block_rhos, blocks
from fleetrank.analysis.panel.panel import Measure, Panel, components, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.decomposition import (
    component_measures,
    mean_shares,
    variance_shares,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

tied = hnp.arrays(
    np.float64, st.tuples(st.integers(5, 9), st.just(3)), elements=st.integers(1, 5).map(float)
)
logs = hnp.arrays(
    np.float64, st.tuples(st.just(3), st.integers(2, 7), st.just(2)), elements=st.floats(-9, 9)
)


def slow_partial(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """The textbook formula from three of SciPy's correlations."""
    xy, xz, yz = (stats.spearmanr(a, b).statistic for a, b in ((x, y), (x, z), (y, z)))
    return float((xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2)))


def partial_measure(values: np.ndarray, given: np.ndarray) -> Measure:
    return Measure(
        name="latency_given_flops", rest=np.ones_like(values), latency=values, given=given
    )


@pytest.mark.slow
@given(tied)
def test_partial_rho_is_the_textbook_formula_or_undefined(values: np.ndarray) -> None:
    units = unit_columns(average_ranks(values))
    found = products(partial_units(units[:, :2], units[:, 2:]))[0, 1]
    x, y, z = values.T
    constant = any(np.ptp(side) == 0 for side in (x, y, z))
    explained = not constant and any(
        1 - abs(stats.spearmanr(side, z).statistic) < 1e-12 for side in (x, y)
    )
    if constant or explained:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(slow_partial(x, y, z), abs=1e-9)


def test_a_null_has_a_mean_though_flops_explain_some_of_its_permutations() -> None:
    """Of the 120 rankings of five models two are FLOPs' own, in either direction."""
    rng = np.random.default_rng(4)
    values, flops = np.exp(rng.normal(size=(5, 3))), np.arange(1.0, 6.0)
    measure, pairs = partial_measure(values, flops), [(0, 1), (0, 2), (1, 2)]
    mean = mean_figures(measure, pairs, ["x", "y", "z"], seed=0)
    for figure in (mean, *pair_figures(measure, pairs, seed=0)):
        assert figure.rho is not None
        assert figure.nulls.null_mean == pytest.approx(0, abs=0.1)
        assert figure.nulls.null_p95 is not None


def test_partial_rho_of_a_pair_uses_its_common_models() -> None:
    rng = np.random.default_rng(3)
    values, flops = np.exp(rng.normal(size=(12, 2))), np.exp(rng.normal(size=12))
    values[4, 0] = np.nan
    (figure,) = pair_figures(partial_measure(values, flops), [(0, 1)], seed=0)
    common = np.isfinite(values[:, 0])
    assert figure.rho == pytest.approx(slow_partial(*values[common].T, flops[common]))
    assert figure.tau_b is None
    assert figure.nulls.null_mean == pytest.approx(0, abs=0.05)
    mean = mean_figures(partial_measure(values, flops), [(0, 1)], ["x"], seed=0)
    assert mean.rho == pytest.approx(figure.rho)


def test_partial_rho_of_a_resample_is_that_of_the_repeated_models() -> None:
    rng = np.random.default_rng(4)
    values, flops = np.exp(rng.normal(size=(9, 2))), np.exp(rng.normal(size=9))
    counts = resample_counts(9, 20, rng)
    block: PairBlock = next(blocks(np.isfinite(values), [(0, 1)]))
    units = np.concatenate(list(block_resamples(partial_measure(values, flops), block, counts)))
    for count, unit in zip(counts, units, strict=True):
        rows = np.repeat(np.arange(9), count)
        assert unit[:, 0] @ unit[:, 1] == pytest.approx(slow_partial(*values[rows].T, flops[rows]))


def test_partial_rho_is_undefined_where_flops_explain_the_ranking() -> None:
    flops = np.arange(1.0, 11)
    values = np.column_stack([flops**2, np.random.default_rng(0).permutation(flops)])
    (figure,) = pair_figures(partial_measure(values, flops), [(0, 1)], seed=0)
    assert figure.rho is None
    assert figure.reason is not None
    assert "explains all" in figure.reason


@pytest.mark.slow
@given(logs)
def test_shares_of_variance_are_covariances_and_sum_to_one(parts: np.ndarray) -> None:
    total = parts.sum(axis=0)
    shares = variance_shares(parts)
    for column in range(2):
        variance = np.var(total[:, column])
        if np.ptp(total[:, column]) < 1e-9:
            continue
        slow = [np.cov(part[:, column], total[:, column], ddof=0)[0, 1] / variance
                for part in parts]  # fmt: skip
        np.testing.assert_allclose(shares[:, column], slow, atol=1e-6, rtol=1e-6)
        assert shares[:, column].sum() == pytest.approx(1, abs=1e-6)


def test_share_is_negative_for_what_runs_against_the_product() -> None:
    parts = np.array([[[0.0], [2], [4]], [[0.0], [-1], [-2]], [[0.0], [0], [0]]])
    np.testing.assert_allclose(variance_shares(parts)[:, 0], [2, -1, 0])


def test_shares_are_undefined_where_the_product_is_equal_for_all() -> None:
    parts = np.array([[[0.1], [0.2]], [[0.2], [0.1]], [[0.3], [0.3]]])
    assert np.isnan(variance_shares(parts)).all()


def test_shares_refuse_nan() -> None:
    with pytest.raises(ValueError, match="NaN"):
        variance_shares(np.full((3, 4, 1), np.nan))


def test_mean_shares_average_inside_a_cluster_first_and_skip_the_undefined() -> None:
    shares = np.array([[0.2, 0.4, 0.9, np.nan], [0.8, 0.6, 0.1, np.nan], [0, 0, 0, np.nan]])
    np.testing.assert_allclose(mean_shares(shares, ["x", "x", "y", "z"]), [0.6, 0.4, 0])
    assert np.isnan(mean_shares(shares[:, 3:], ["z"])).all()


FLOPS = [10**n for n in range(10)]
MEMORY = [3**n for n in range(10)]
UP = [1.0 + n / 100 for n in range(10)]
MIXED = [UP[n] for n in (5, 2, 9, 0, 7, 4, 1, 8, 3, 6)]


def decompose(make_grid, source: list[float], target: list[float]) -> Table:
    frame = make_grid({"d1": source, "d2": target}, flops=FLOPS, memory=MEMORY)
    return make_table("transfer/full", frame, Selection())


def pair_row(table: Table, measure: str) -> dict[str, object]:
    rows = table.frame.filter((pl.col("level") == "pair") & (pl.col("measure") == measure))
    (row,) = rows.to_dicts()
    return row


@pytest.mark.slow
def test_frm_correlates_perfectly_while_latency_does_not_transfer(make_grid) -> None:
    table = decompose(make_grid, UP, MIXED)
    latency, frm = pair_row(table, "latency"), pair_row(table, "frm")
    assert latency["rho"] == pytest.approx(stats.spearmanr(UP, MIXED).statistic)
    assert (frm["rho"], frm["null_mean"]) == (pytest.approx(1), pytest.approx(1))
    assert frm["p_value"] == 1
    assert (frm["headroom"], frm["reason"]) == (None, "no headroom: the null is 1")
    assert any(has(n, "FRM", "correlation", "high") for n in table.explanation)
    (found,) = [note for note in table.notes if note.startswith("In ")]
    assert "does not show transfer" in found


@pytest.mark.slow
def test_measures_without_latency_have_no_null_and_say_why(make_grid) -> None:
    table = decompose(make_grid, UP, MIXED)
    for name in ("frm_without_latency", "flops", "memory"):
        row = pair_row(table, name)
        assert (row["rho"], row["null_mean"], row["p_value"]) == (pytest.approx(1), None, None)
        assert has(row["reason"], "measure", "latency")


@pytest.mark.slow
def test_shares_of_a_pair_are_the_mean_of_its_platforms(make_grid) -> None:
    table = decompose(make_grid, UP, MIXED)
    expected = np.mean(
        [
            [np.cov(part, np.sum(parts, axis=0))[0, 1] / np.var(np.sum(parts, axis=0), ddof=1)
             for part in parts]
            for parts in (np.log([FLOPS, UP, MEMORY]), np.log([FLOPS, MIXED, MEMORY]))
        ],
        axis=0,
    )  # fmt: skip
    found = [pair_row(table, name)["variance_share"] for name in ("flops", "latency", "memory")]
    assert found == pytest.approx(expected.tolist())
    assert sum(found) == pytest.approx(1)


def test_a_memory_of_0_is_no_value(make_grid) -> None:
    frame = make_grid({"d1": UP, "d2": MIXED}, flops=FLOPS, memory=[0, *MEMORY[1:]])
    panel = Session(frame, Selection()).panel
    for values in (components(panel)["memory"], measures(panel)[1].rest):
        assert np.isnan(values).sum(axis=0).tolist() == [1, 1]


@pytest.mark.slow
def test_four_models_give_reasons_and_no_figures(make_grid) -> None:
    frame = make_grid({"d1": UP[:4], "d2": UP[:4]}, flops=FLOPS[:4], memory=MEMORY[:4])
    shown = make_table("transfer/full", frame, Selection()).frame
    assert shown["rho"].null_count() == shown.height
    assert shown["variance_share"].null_count() == shown.height
    assert shown["reason"].null_count() == 0


@pytest.mark.slow
def test_weight_of_zero_takes_a_component_out_of_both_tables(make_grid) -> None:
    frame = make_grid({"d1": UP, "d2": MIXED}, flops=FLOPS)
    chosen = Selection(settings=(("weight_memory", "0"), ("weight_latency", "2")))
    table = make_table("transfer/full", frame, chosen)
    assert set(table.frame["measure"]) == {
        "latency", "latency_given_flops", "frm_without_memory", "frm_without_flops",
        "frm_without_latency", "flops",
    }  # fmt: skip
    assert pair_row(table, "frm_without_memory")["rho"] is not None
    shares = [pair_row(table, name)["variance_share"] for name in ("flops", "latency")]
    assert sum(shares) == pytest.approx(1)
    assert any("weights: flops 1, latency 2, memory 0" in note for note in table.notes)
    first = make_table("flops/frm", frame, chosen).frame.to_dicts()[0]
    assert first["frm"] == pytest.approx(
        (first["ratio_flops"] * first["ratio_latency"] ** 2) ** (1 / 3)
    )
    assert first["ratio_memory"] is None


@pytest.mark.slow
def test_rows_without_any_memory_have_frm_without_it(make_grid) -> None:
    """The figures are those of a weight of 0; with one memory, models without it are left out."""
    frame = make_grid({"d1": UP, "d2": MIXED}, flops=FLOPS)
    table = make_table("transfer/full", frame, Selection())
    weighted = make_table("transfer/full", frame, Selection(settings=(("weight_memory", "0"),)))
    assert table.frame.equals(weighted.frame)
    assert has(table.notes, "No row has a memory", "frm_without_memory")
    row = pair_row(make_table("transfer", frame, Selection()), "frm_without_memory")
    assert row["rho"] == pytest.approx(pair_row(table, "frm_without_memory")["rho"])
    one = make_grid({"d1": UP, "d2": MIXED}, flops=FLOPS, memory=[1, *[0] * (len(UP) - 1)])
    assert pair_row(make_table("transfer", one, Selection()), "frm")["rho"] is None


def test_frm_without_latency_is_refused_with_a_remedy(make_grid) -> None:
    chosen = Selection(settings=(("weight_latency", 0),))
    with pytest.raises(AnalysisError, match="latency's weight above 0"):
        make_table("flops/frm", make_grid({"d1": UP}, flops=FLOPS, memory=MEMORY), chosen)


def test_few_models_are_warned_of_by_number() -> None:
    assert "0.81 to 1.00" in few_models_note(13)[0]
    assert "0.81 to 1.00" in few_models_note(5)[0]
    assert "0.84 to 0.96" in few_models_note(60)[0]
    assert few_models_note(100) == ()


_PUBLIC = {
    "rtx3090": "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv",
    "i9": "benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv",
    "i7": "benchmark-infer-fp32-nchw-pt240-cpu-i7_12700h-dynamo.csv",
}


def public_panel(folder: Path, other: Panel) -> Panel:
    """GMACs, time per sample and parameters of what three public files have in common."""
    key = ["model", "infer_img_size"]
    tables = [
        pl.read_csv(folder / file, schema_overrides={"param_count": pl.String})
        .filter(pl.col("infer_gmacs") > 0)
        .unique(key, keep="first", maintain_order=True)
        .select(
            *key,
            pl.col("infer_gmacs").alias(f"macs {name}"),
            (1000 / pl.col("infer_samples_per_sec")).alias(name),
            pl.col("param_count").str.replace_all(",", "").cast(pl.Float64).alias(f"size {name}"),
        )
        for name, file in _PUBLIC.items()
    ]
    joined = tables[0].join(tables[1], on=key).join(tables[2], on=key).sort(key)
    size = joined["size rtx3090"].to_numpy()
    macs = joined.select(pl.max_horizontal(pl.col("^macs .*$")).alias("macs"))["macs"].to_numpy()
    # Of the panel only these fields matter here.
    return replace(
        other,
        models=tuple(joined["model"]),
        latency=joined.select(*_PUBLIC).to_numpy(),
        memory=np.repeat(size[:, None], len(_PUBLIC), axis=1),
        flops=macs,
    )


@pytest.mark.slow
def test_public_files_give_the_figures_recomputed_by_hand(make_grid) -> None:
    folder = Path(os.environ.get("FLEETRANK_PUBLIC_DATA", "../shared/data")) / "timm"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here; FLEETRANK_PUBLIC_DATA names a folder with timm/ in it")
    panel = public_panel(folder, Session(make_grid({"d1": [1.0]}), Selection()).panel)
    pairs = [(0, 1), (0, 2), (1, 2)]
    (block,) = blocks(np.isfinite(panel.latency), pairs)
    found = {one.name: block_rhos(one, block).round(3) for one in component_measures(panel)}
    assert len(panel.models) == 1433
    assert found["latency"].tolist() == [0.944, 0.957, 0.970]
    assert found["frm"].tolist() == [0.995, 0.996, 0.998]
    partial = [slow_partial(panel.latency[:, i], panel.latency[:, j], panel.flops)
               for i, j in pairs]  # fmt: skip
    np.testing.assert_allclose(found["latency_given_flops"], partial, atol=5e-4)


@pytest.mark.slow
def test_the_residual_p_of_pairs_is_adjusted_over_the_pairs_of_a_measure(make_grid) -> None:
    rng = np.random.default_rng(2)
    flops = [int(10 ** (6 + i / 4)) for i in range(10)]
    devices = {f"d{d}": [f * float(np.exp(rng.normal())) for f in flops] for d in range(4)}
    frame = make_grid(devices, flops=flops, memory=range(1, 11))
    rows = make_table("transfer", frame, Selection()).frame.filter(pl.col("level") == "pair")
    for measure in ("latency", "frm"):
        mine = rows.filter(pl.col("measure") == measure)
        assert mine.height == 6
        expected = stats.false_discovery_control(mine["residual_p"].to_list(), method="bh")
        assert mine["residual_p_adjusted"].to_list() == pytest.approx(expected.tolist())
        assert mine["residual_p_adjusted"].sum() > mine["residual_p"].sum()
