"""What `import fleetrank` promises."""

import subprocess
import sys
from pathlib import Path

import pytest
from fleet_rows import NETS, SWEEP, write_results

import fleetrank
from fleetrank.analysis.stored.selection import Selection


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("public"))


def test_all_promised_names_are_there() -> None:
    names = ["FleetError", "faster", "load", "predict", "query", "report", "table", "tables"]
    assert sorted(fleetrank.__all__) == names
    assert all(hasattr(fleetrank, name) for name in fleetrank.__all__)


def test_importing_it_loads_no_library() -> None:
    code = "import fleetrank, sys; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "polars", "torch", "ray", "duckdb"} & set(done.stdout.split())


def test_load_has_every_attempt(results: Path) -> None:
    frame = fleetrank.load(results).collect()
    assert set(frame["model"]) == {net.name for net in NETS}
    assert set(frame["status"]) == {"ok", "failed"}
    assert fleetrank.load(results, sweep=SWEEP).collect().height == frame.height


def test_a_table_is_a_frame_with_notes(results: Path) -> None:
    assert "transfer" in fleetrank.tables()
    table = fleetrank.table("latency", results, Selection(runtime="onnx"))
    assert table.frame.height == len(NETS) * 3
    assert table.notes


def test_sql_sees_the_measurements(results: Path) -> None:
    found = fleetrank.query(results, "SELECT count(DISTINCT model) AS n FROM measurements")
    assert found["n"].to_list() == [len(NETS)]


def test_the_page_is_written(results: Path, tmp_path: Path) -> None:
    facts = fleetrank.report(results, tmp_path / "report.html")
    assert facts.path.stat().st_size == facts.size_bytes


def test_every_error_has_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(fleetrank.FleetError) as caught:
        fleetrank.load(tmp_path / "nothing")
    assert caught.value.remedy
    with pytest.raises(fleetrank.FleetError):
        fleetrank.table("no-such-table", write_results(tmp_path / "results"))


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fleetrank", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip()
