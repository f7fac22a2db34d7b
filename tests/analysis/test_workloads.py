"""A table is about one workload; the others are named, never mixed in."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fleet_rows import write_results
from language_rows import WORKLOADS, write_language_results
from scipy.stats import rankdata
from shared_tables import NAMES, SharedTables
from wording import has

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.sql import run_query
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.exclusions import cell_pattern
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.name_patterns import fits
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import TableRequest, make_table, session_table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_results(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("both")
    write_results(folder)
    return write_language_results(folder)


def make_session(results: Path, **chosen: object) -> Session:
    return Session(load_measurements(results, origins=ORIGINS), Selection(**chosen))


def test_several_workloads_without_a_choice_are_an_error_that_names_them(text: Path) -> None:
    with pytest.raises(AnalysisError) as raised:
        _ = make_session(text).cells
    assert all(name in raised.value.message for name in WORKLOADS)
    assert "workload=" in raised.value.remedy


def test_the_only_workload_of_the_selected_rows_needs_no_choice(tmp_path: Path) -> None:
    results = write_language_results(tmp_path, workloads=["decode@128"])
    assert str(make_session(results).workload) == "decode@128"


def test_an_absent_workload_names_those_that_exist(both: Path) -> None:
    with pytest.raises(NoDataError) as raised:
        make_table("latency", load_measurements(both), Selection(workload="decode@256"))
    assert "decode@512" in raised.value.remedy
    assert "image" in raised.value.remedy


@pytest.mark.parametrize("wrong", ["decode", "decode@0", "prefill@1e3", "", "decode@512 "])
def test_a_text_that_is_not_a_workload_is_refused(wrong: str) -> None:
    with pytest.raises(AnalysisError, match="not a workload"):
        Selection(workload=wrong)


def test_rows_of_images_give_the_figures_that_they_give_alone(both: Path, tmp_path: Path) -> None:
    alone = make_session(write_results(tmp_path))
    mixed = make_session(both)
    for name in ("latency", "transfer", "flops/frm", "trust/stability"):
        assert session_table(name, mixed).frame.equals(session_table(name, alone).frame)
    notes = session_table("latency", mixed).notes
    assert has(notes, "Not shown", *WORKLOADS, f"workload={WORKLOADS[0]}")


OF_ACCURACY = {"frontier": "no quality", "frontier/regret": "no accuracy"}
"""No accuracy is published for decoders, and none was evaluated, so nothing has a frontier."""


OF_OTHER_RESULTS = {
    "eval", "eval/precisions", "pairs/precisions", "components", "components/ratios",
    "latency/training", "scaling", "scaling/points", "scaling/replicas", "tokens/contexts",
}  # fmt: skip
OF_DOUBTS = {"trust/dropped", "trust/findings", "trust/host", "trust/waits"}
"""Nothing failed, took turns or waited here."""
"""No evaluation, profile, set of processes, step of training or second size is measured here."""


@pytest.mark.thorough
def test_every_table_can_be_made_of_a_workload_with_tokens(
    text: Path, subtests: pytest.Subtests
) -> None:
    rows, steps = load_measurements(text), "decode@512"
    tables = SharedTables(rows, rows, Selection(workload=steps), workload=steps)
    for name in sorted(set(NAMES) - OF_ACCURACY.keys() - OF_OTHER_RESULTS):
        with subtests.test(name):
            table = tables.table(TableRequest(name=name))
            assert (table.frame.height > 0) is (name not in OF_DOUBTS)


def test_sql_and_tables_read_the_same_workloads(both: Path) -> None:
    counted = run_query(both, "SELECT workload, count(*) AS n FROM measurements GROUP BY workload")
    scanned = load_measurements(both).group_by("workload").len().collect()
    assert dict(counted.iter_rows()) == dict(scanned.iter_rows())
    assert "image" in counted["workload"].to_list()


@pytest.mark.parametrize(
    ("pattern", "n_workloads", "n_models"),
    [
        ("stories15m", 4, 1),
        ("decode@512", 1, 12),
        ("stories15m decode@*", 2, 1),
        ("* prefill@128 on xeon/*", 1, 12),
        (cell_pattern("gpt2", "xeon/onnx/cpu/eager/fp32/b1/t1/afree/{}", "decode@512"), 1, 1),
    ],
)
def test_an_exclusion_can_name_a_workload(
    text: Path, pattern: str, n_workloads: int, n_models: int
) -> None:
    covered = load_measurements(text).filter(fits(pattern)).collect()
    assert covered["workload"].n_unique() == n_workloads
    assert covered["model"].n_unique() == n_models


def test_the_bytes_of_the_weights_are_a_baseline_of_steps(text: Path) -> None:
    """Held against the formula of a partial rank correlation over SciPy's ranks."""
    chosen = Selection(workload="decode@512")
    table = make_table("transfer/full", load_measurements(text), chosen).frame
    row = table.filter(
        (pl.col("measure") == "latency_given_weights") & (pl.col("level") == "pair")
    ).to_dicts()[0]
    cells = make_session(text, workload="decode@512").cells.cells
    wide = cells.pivot("platform_key", index=["model", "weight_bytes"], values="latency_ns")
    a, b, given = (rankdata(wide[name]) for name in (row["source"], row["target"], "weight_bytes"))
    ab, ag, bg = (np.corrcoef(*two)[0, 1] for two in ((a, b), (a, given), (b, given)))
    expected = (ab - ag * bg) / np.sqrt((1 - ag**2) * (1 - bg**2))
    assert row["rho"] == pytest.approx(expected)


def test_images_have_no_such_baseline(both: Path) -> None:
    table = make_table("transfer/full", load_measurements(both), Selection()).frame
    assert "latency_given_weights" not in table["measure"].to_list()
