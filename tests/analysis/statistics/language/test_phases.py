"""Rank agreement of workloads, held against SciPy over the cells of the rows."""

import itertools

import numpy as np
import polars as pl
import pytest
from language_rows import DECODERS, MACHINES, write_language_results
from scipy.stats import spearmanr

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.conditions import Level
from fleetrank.analysis.panel.panel import FRM, LATENCY
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.language.language import PhasesResult, answer_of, phases
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    rows = load_measurements(write_language_results(tmp_path_factory.mktemp("phases")))
    return rows.collect().lazy()


@pytest.fixture(scope="module")
def found(frame) -> PhasesResult:
    return phases(Session(frame, Selection()))


def values(frame: pl.LazyFrame, workload: str, quantity: str = "latency_ns") -> pl.DataFrame:
    """One row per model, one column per platform."""
    cells = Session(frame, Selection(workload=workload)).cells.cells
    if quantity == "frm":
        cells = cells.with_columns(
            frm=pl.col("latency_ns") * pl.col("peak_memory_bytes") * pl.col("flops")
        )
    return cells.pivot("platform_key", index="model", values=quantity).sort("model").drop("model")


@pytest.mark.parametrize(("measure", "column"), [(LATENCY, "latency_ns"), (FRM, "frm")])
def test_the_mean_over_platforms_is_that_of_scipy(frame, found, measure: str, column: str) -> None:
    prompts, steps = (values(frame, one, column) for one in ("prefill@512", "decode@512"))
    rhos = [spearmanr(prompts[key], steps[key]).statistic for key in prompts.columns]
    mean = found.mean(Level.WORKLOADS, measure, "prefill@512", "decode@512")
    assert mean is not None
    assert mean.rho == pytest.approx(np.mean(rhos))
    assert mean.low < mean.rho < mean.high
    singles = [
        one.rho for one in found.rows
        if (one.level, one.measure, one.source, one.target)
        == (Level.PLATFORM, measure, "prefill@512", "decode@512")
    ]  # fmt: skip
    assert sorted(singles) == pytest.approx(sorted(rhos))


@pytest.mark.thorough
def test_a_device_of_no_known_model_is_a_model_of_its_own(frame, found) -> None:
    unknown = frame.with_columns(device_model=pl.lit(None, dtype=pl.String))
    apart = phases(Session(unknown, Selection()))
    for level, source in ((Level.WORKLOADS, "prefill@512"), (Level.DEVICES, "decode@512")):
        wanted = (level, LATENCY, source, "decode@512")
        assert apart.mean(*wanted).averaged.n_pairs == found.mean(*wanted).averaged.n_pairs
        assert apart.mean(*wanted).rho == found.mean(*wanted).rho


def test_the_mean_over_devices_is_that_of_scipy(frame, found) -> None:
    steps = values(frame, "decode@512")
    rhos = [
        spearmanr(steps[a], steps[b]).statistic for a, b in itertools.combinations(steps.columns, 2)
    ]
    mean = found.mean(Level.DEVICES, LATENCY, "decode@512", "decode@512")
    assert mean is not None
    assert mean.rho == pytest.approx(np.mean(rhos))
    assert mean.averaged.n_pairs == len(rhos)


def test_the_null_of_frm_is_high_where_its_other_parts_are_the_same(found) -> None:
    frm = found.mean(Level.WORKLOADS, FRM, "prefill@512", "decode@512")
    latency = found.mean(Level.WORKLOADS, LATENCY, "prefill@512", "decode@512")
    assert frm is not None
    assert latency is not None
    assert frm.nulls.null_mean > 0.5
    assert abs(latency.nulls.null_mean) < 0.1


def test_a_workload_of_the_selection_is_in_every_compared_pair(frame) -> None:
    table = make_table("transfer/phases", frame, Selection(workload="decode@128")).frame
    between = table.filter(pl.col("level") == "workloads")
    assert between.filter(
        (pl.col("source") != "decode@128") & (pl.col("target") != "decode@128")
    ).is_empty()
    assert between.height == 3 * 2


@pytest.mark.thorough
def test_one_workload_cannot_be_compared(tmp_path) -> None:
    rows = load_measurements(write_language_results(tmp_path, workloads=["decode@128"]))
    with pytest.raises(NoDataError, match="decode@128"):
        make_table("transfer/phases", rows, Selection())


def test_workloads_that_only_failed_are_named(frame) -> None:
    is_kept = pl.col("workload") == "decode@128"
    failed = frame.with_columns(status=pl.when(is_kept).then("status").otherwise(pl.lit("failed")))
    with pytest.raises(NoDataError, match="Left out: prefill@128"):
        make_table("transfer/phases", failed, Selection())


@pytest.mark.thorough
def test_a_model_that_one_workload_lacks_is_left_out_of_its_pairs(frame) -> None:
    lacks = (pl.col("workload") == "prefill@512") & (pl.col("model") == "gpt2")
    found = phases(Session(frame.filter(~lacks), Selection()))
    mean = found.mean(Level.WORKLOADS, LATENCY, "prefill@512", "decode@512")
    other = found.mean(Level.WORKLOADS, LATENCY, "prefill@128", "decode@512")
    assert (mean.n_models, other.n_models) == (len(DECODERS) - 1, len(DECODERS))
    assert found.n_platforms == len(MACHINES)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("slower", "is_yes"), [(lambda n: 1.0, True), (lambda n: 3.0 ** (-n), False)]
)
def test_the_answer_follows_the_interval(frame, slower, is_yes: bool) -> None:
    """Prompts in the order of the steps, or in the opposite one."""
    names = [one.name for one in DECODERS]
    order = pl.col("model").replace_strict({name: float(n) for n, name in enumerate(names)})
    is_step = pl.col("workload").str.starts_with("decode")
    factors = {float(n): slower(n) for n in range(len(names))}
    own = order.replace_strict(factors)
    latency = pl.when(is_step).then(1e6 * 2.0**order).otherwise(1e6 * 2.0**order * own)
    made = frame.with_columns(latency_p50_ns=latency * (1 + 0.001 * pl.col("repeat")))
    answer = answer_of(phases(Session(made, Selection())))
    assert answer is not None
    assert answer.is_yes is is_yes
    assert (answer.prefill, answer.decode) == ("prefill@512", "decode@512")
