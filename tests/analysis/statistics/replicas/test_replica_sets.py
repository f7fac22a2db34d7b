"""System throughput of hand-written intervals, and the sets that must not be summed."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fleet_rows import SWEEP, write_results
from stored_part import write_part
from wording import has

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.scaling.replica_sets import newest_runs, over_one, set_figures
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.component_times import OF_MEASUREMENTS
from fleetrank.analysis.stored.load import load_measurements, valid_attempts
from fleetrank.analysis.stored.replica_runs import REPLICA_RUNS
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import session_table
from fleetrank.orchestrator.store.side import append_side

S = 1_000_000_000
Row = dict[str, object]
Interval = tuple[float, float, int]
"""Start and end of one process in seconds, and its inferences."""


def set_rows(n: int, repeat: int, intervals: list[Interval], **changes: object) -> list[Row]:
    """The rows of one set; each process runs at its own speed, back to back."""
    rows = []
    for number, (start_s, end_s, inferences) in enumerate(intervals, start=1):
        length_ns = int((end_s - start_s) * S)
        rows.append(
            {
                "sweep_id": SWEEP, "cell_key": "k", "repeat": repeat, "attempt": 0, "status": "ok",
                "model": "m", "platform_key": "p", "workload": None, "batch": 1,
                "set_id": f"{n}/{repeat}", "n_replicas": n, "run_s": 10.0,
                "core_use": "own", "replica": number, "given_cpus": [number], "cpus": [number],
                "start_ns": int(start_s * S), "end_ns": int(end_s * S), "inferences": inferences,
                "samples_ns": [length_ns // inferences] * inferences,
                "run_peak_memory_bytes": 100 * 2**20, "flags": [],
                **changes,
            }
        )  # fmt: skip
    return rows


def figures(rows: list[Row]) -> dict[str, object]:
    frame = pl.DataFrame(rows, schema={**REPLICA_RUNS.schema})
    (row,) = set_figures(newest_runs(frame)).to_dicts()
    return row


def test_throughput_is_all_work_over_the_time_from_first_start_to_last_end() -> None:
    """Three processes, 100 + 100 + 80 inferences in 10.2 s: no mean of their own rates."""
    found = figures(set_rows(3, 0, [(5.0, 15.0, 100), (5.1, 15.1, 100), (5.2, 15.2, 80)]))
    assert found["items_per_s"] == pytest.approx(280 / 10.2)
    assert found["overlap"] == pytest.approx(9.8 / 10.2)
    assert found["flags"] == []
    own = [100 / 10.0, 100 / 10.0, 80 / 10.0]
    assert found["items_per_s"] != pytest.approx(np.sum(own))
    assert found["items_per_s"] != pytest.approx(np.mean(own))


def test_tokens_count_instead_of_samples() -> None:
    rows = set_rows(1, 0, [(0.0, 2.0, 10)], tokens_per_inference=128, workload="prefill@128")
    found = figures(rows)
    assert (found["item"], found["items_per_s"]) == ("token", pytest.approx(640.0))
    batched = figures(set_rows(1, 0, [(0.0, 2.0, 10)], batch=8))
    assert (batched["item"], batched["items_per_s"]) == ("sample", pytest.approx(40.0))


@pytest.mark.parametrize(
    ("intervals", "overlap"),
    [
        ([(0.0, 10.0, 10), (10.0, 20.0, 10)], 0.0),
        ([(0.0, 10.0, 10), (30.0, 40.0, 10)], 0.0),
        ([(0.0, 10.0, 10), (0.6, 10.0, 10)], 0.94),
    ],
)
def test_processes_that_did_not_run_together_are_not_summed(
    intervals: list[Interval], overlap: float
) -> None:
    found = figures(set_rows(2, 0, intervals))
    assert found["overlap"] == pytest.approx(overlap)
    assert found["flags"] == ["overlap"]
    assert found["items_per_s"] is None


def test_95_per_cent_are_enough() -> None:
    assert figures(set_rows(2, 0, [(0.0, 10.0, 10), (0.4, 10.0, 10)]))["items_per_s"] is not None


def test_a_process_on_other_cores_or_another_device_is_not_summed() -> None:
    both: list[Interval] = [(0.0, 10.0, 10), (0.0, 10.0, 10)]
    moved = figures(set_rows(2, 0, both, cpus=[0, 1]))
    assert (moved["flags"], moved["items_per_s"]) == (["placement"], None)
    free = figures(set_rows(2, 0, both, core_use="free", given_cpus=None, cpus=[0, 1]))
    assert (free["flags"], free["items_per_s"]) == ([], pytest.approx(2.0))
    gpu: Row = {"core_use": None, "given_cpus": None}
    there = figures(set_rows(2, 0, both, process_memory_bytes=5, **gpu))
    assert (there["flags"], there["items_per_s"]) == ([], pytest.approx(2.0))
    away = figures(set_rows(2, 0, both, process_memory_bytes=0, **gpu))
    assert (away["flags"], away["items_per_s"]) == (["placement"], None)
    unknown = figures(set_rows(2, 0, both, process_memory_bytes=None, **gpu))
    assert unknown["flags"] == ["placement_unknown"]
    assert unknown["items_per_s"] == pytest.approx(2.0)


def test_a_set_with_a_process_that_failed_is_not_summed() -> None:
    rows = set_rows(2, 0, [(0.0, 10.0, 10), (0.0, 10.0, 10)], status="failed")
    lost = ("start_ns", "end_ns", "inferences", "samples_ns", "run_peak_memory_bytes", "cpus")
    rows[1] |= dict.fromkeys(lost)
    found = figures(rows)
    assert (found["flags"], found["items_per_s"]) == (["failed"], None)
    assert found["peak_memory_bytes"] is None, "a sum with a missing part is missing"


def test_energy_of_the_device_is_divided_by_the_work_of_all_processes() -> None:
    """2 W over 10 s are 20 J, for 100 inferences of four processes."""
    rows = set_rows(4, 0, [(0.0, 10.0, 25)] * 4)
    for number, row in enumerate(rows):
        row |= {"cpus": [number], "given_cpus": [number]}
    rows[0] |= {"device_energy_mj": 16_000.0, "device_energy_ns": 8 * S}
    assert figures(rows)["j_per_item"] == pytest.approx(0.2)
    assert figures(set_rows(4, 0, [(0.0, 10.0, 25)] * 4))["j_per_item"] is None


def test_the_ratio_to_one_process_is_that_of_two_samples() -> None:
    rng = np.random.default_rng(0)
    one, many = rng.lognormal(0, 0.02, 5), rng.lognormal(1, 0.05, 5)
    found = over_one(one, many)
    assert found.ratio == pytest.approx(np.median(many) / np.median(one))
    assert found.low is not None
    assert found.high is not None
    assert found.low < np.e < found.high
    assert found.low * found.high == pytest.approx(found.ratio**2)
    assert over_one(one[:1], many[:1]).low is None
    assert over_one(np.array([]), many).ratio is None


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sets of 1, 2 and 4 processes of one measured cell: 4 are no faster than 2."""
    folder = write_results(tmp_path_factory.mktemp("sets") / "results")
    cell = _cell(folder)
    rows: list[Row] = []
    rng = np.random.default_rng(1)
    for repeat in range(5):
        for n, total in ((1, 1000), (2, 2000), (4, 2000)):
            each = int(total / n * rng.uniform(0.99, 1.01))
            made = set_rows(n, repeat, [(0.0, 10.0, each)] * n, set_id=f"{n}/{repeat}")
            for number, row in enumerate(made):
                row |= {"cpus": [number], "given_cpus": [number]}
            rows += [{**cell, **row, **_identity(cell), "repeat": repeat} for row in made]
    late = set_rows(4, 5, [(0.0, 10.0, 10), (9.0, 19.0, 10)], set_id="4/late")
    rows += [{**cell, **row, **_identity(cell), "repeat": 5} for row in late]
    append_side(folder, REPLICA_RUNS, [_without_id(row) for row in rows], sweep_id=SWEEP)
    return folder


NEWER = "newer-20260601T000000-0000"


def _with_sets(folder: Path, sweep_id: str, inferences: int, **changes: object) -> None:
    """Adds five newer sets of one process."""
    cell = _cell(folder)
    rows = [
        {**cell, **row, **_identity(cell), "repeat": repeat, **changes}
        for repeat in range(5)
        for row in set_rows(1, repeat, [(0.0, 10.0, inferences)], set_id=f"{sweep_id}/{repeat}")
    ]
    rows = [row | {"started_utc": datetime(2100, 1, 1, tzinfo=UTC)} for row in rows]
    append_side(folder, REPLICA_RUNS, [_without_id(row) for row in rows], sweep_id=sweep_id)


def _cell(folder: Path) -> Row:
    rows = valid_attempts(load_measurements(folder)).select(OF_MEASUREMENTS)
    return rows.sort("cell_key", "repeat").collect().row(0, named=True)


def _rate_of_one(found: Table) -> float:
    return {row["n_replicas"]: row for row in found.frame.to_dicts()}[1]["items_per_s"]


@pytest.fixture
def both(results: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copytree(results, tmp_path / "results")


def _rewrite(folder: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    part = next((folder / "measurements").rglob("*.parquet"))
    change(pl.read_parquet(part)).pipe(write_part, part)


@pytest.mark.slow
def test_the_sets_of_the_selected_sweep_are_shown(both: Path) -> None:
    _with_sets(both, NEWER, 900)
    assert _rate_of_one(table(both)) == pytest.approx(90)
    shown = table(both, sweep=SWEEP)
    assert _rate_of_one(shown) == pytest.approx(100, rel=0.02)
    low, rate, high = shown.frame.select("items_low_per_s", "items_per_s", "items_high_per_s").row(
        0
    )
    assert low < rate < high
    assert low * high == pytest.approx(rate**2, rel=0.01)


@pytest.mark.slow
def test_excluded_sets_are_not_shown(both: Path) -> None:
    _with_sets(both, NEWER, 900)
    record = {"next_number": 2, "exclusions": [
        {"number": 1, "sweep_id": NEWER, "pattern": _cell(both)["model"], "reason": "a fan failed",
         "excluded_utc": "2026-06-02T00:00:00Z"}]}  # fmt: skip
    (both / "exclusions.json").write_text(json.dumps(record))
    assert _rate_of_one(table(both)) == pytest.approx(100, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("workload", [None, "prefill@4096"])
def test_a_newer_sweep_that_failed_hides_neither_an_older_one_nor_a_workload(
    both: Path, workload: str | None
) -> None:
    lost = {"status": "failed", "workload": workload}
    if workload is not None:
        failed = {name: pl.lit(word) for name, word in lost.items()}
        _rewrite(
            both,
            lambda frame: pl.concat(
                [frame, frame.head(1).with_columns(**failed, cell_key=pl.lit("other"))]
            ),
        )
    _with_sets(both, NEWER, 9, **{name: word for name, word in lost.items() if word})
    assert _rate_of_one(table(both)) == pytest.approx(100, rel=0.02)


@pytest.mark.slow
def test_sets_of_two_weights_of_a_model_are_not_one_series(both: Path) -> None:
    cell = _cell(both)
    is_cell = pl.col("cell_key") == cell["cell_key"]
    twin = {"cell_key": pl.lit("other"), "weights_id": pl.lit("seed-1")}
    _rewrite(both, lambda frame: pl.concat([frame, frame.filter(is_cell).with_columns(**twin)]))
    with pytest.raises(NoDataError) as caught:
        table(both)
    assert has(caught.value.message, str(cell["model"]), "weights")


@pytest.mark.slow
def test_only_models_with_sets_are_counted_as_simulated(both: Path) -> None:
    is_other = pl.col("model") != _cell(both)["model"]
    origin = pl.when(is_other).then(pl.lit("simulated")).otherwise("origin")
    _rewrite(both, lambda frame: frame.with_columns(origin=origin))
    rows = load_measurements(both, origins=ORIGINS)
    found = session_table(
        "scaling/replicas", Session(rows, Selection(origins=ORIGINS), results=both)
    )
    assert not has(found.notes, "SIMULATED DATA")


def _identity(cell: Row) -> Row:
    return {name: cell[name] for name in ("cell_key", "model", "platform_key", "workload")}


def _without_id(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "sweep_id"}


def table(results: Path, **selection: object) -> Table:
    chosen = Selection(**selection)  # type: ignore[arg-type]
    return session_table(
        "scaling/replicas", Session(load_measurements(results), chosen, results=results)
    )


@pytest.mark.slow
def test_the_table_compares_each_number_of_processes_with_one(results: Path) -> None:
    found = table(results)
    by_number = {row["n_replicas"]: row for row in found.frame.to_dicts()}
    assert set(by_number) == {1, 2, 4}
    two, four = by_number[2], by_number[4]
    assert two["items_per_s"] == pytest.approx(200, rel=0.02)
    assert two["over_one"] == pytest.approx(2.0, rel=0.02)
    assert two["over_one_low"] < two["over_one"] < two["over_one_high"]
    assert two["items_low_per_s"] <= two["items_per_s"] <= two["items_high_per_s"]
    assert two["than_one"] == "more"
    assert four["latency_over_one"] == pytest.approx(2.0, rel=0.02)
    assert four["memory_mib"] == 400
    assert (four["n_sets"], four["n_left_out"]) == (5, 1)
    assert four["flags"] == ["failed"]
    assert has(found.notes, "WARNING", "not summed", "1 set")


@pytest.mark.slow
def test_a_model_without_sets_is_refused_with_the_command(results: Path) -> None:
    with pytest.raises(NoDataError) as raised:
        table(results, model=("squeezenet1_1",))
    assert "replicas=1,2,4" in raised.value.remedy
