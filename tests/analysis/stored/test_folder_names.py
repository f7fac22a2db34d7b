"""A folder's name is no pattern: brackets and stars in it choose no other folder."""

from pathlib import Path

import pytest
from daily import daily
from fleet_rows import NETS, PLACES, SWEEP, write_results

from fleetrank.analysis.sql import run_query
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.orchestrator.cli.reading_turn import Work, work_s
from fleetrank.orchestrator.store.health import examine
from fleetrank.orchestrator.store.parts import read_sweeps, repeat_seconds
from fleetrank.orchestrator.store.results import ResultStore


@pytest.mark.parametrize(
    "name", daily(["lab[1]", "results [2026]", "lab*", "lab?", "{a,b}"], "lab[1]", "lab*")
)
def test_rows_are_those_of_the_folder_itself(tmp_path: Path, name: str) -> None:
    sizes = {"nets": NETS[:2], "places": PLACES[:1], "n_samples": 2}
    mine = write_results(tmp_path / name / "results", repeats=2, **sizes)
    for sibling in ("lab1", "results 2", "labx", "a"):
        write_results(tmp_path / sibling / "results", repeats=3, **sizes)
    n_rows = load_measurements(mine).collect().height
    assert n_rows == 2 * 2
    assert run_query(mine, "SELECT count(*) FROM measurements").item() == n_rows
    store = ResultStore(mine)
    assert read_sweeps(mine, [SWEEP]).height == n_rows
    assert repeat_seconds(mine, [SWEEP])
    assert examine(store, SWEEP) == []
    parts = list(mine.glob("measurements/sweep_id=*/*.parquet"))
    assert work_s(parts, Work.ROWS) > 0
