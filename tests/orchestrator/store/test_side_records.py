"""Side tables: stored, read, checked, deleted and copied like measurements."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from command_line import run_inside
from fleet_rows import SWEEP, write_results
from wording import has

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.sql import run_query
from fleetrank.analysis.sql_views import described_views
from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.part_list import NO_SWEEP, part_files
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.housekeeping import copy_sweep, delete_sweep
from fleetrank.orchestrator.store.health import examine, repair_sweep
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import append_side, copy_side_rows
from fleetrank.orchestrator.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _row(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "evaluation_id": "e-1",
        "model": "stories15M",
        "task": "ppl",
        "quality_metric": "perplexity",
        "quality": 12.5,
        "flags": ["seeded"],
        "started_utc": WHEN,
    }
    return row | changes


def test_rows_come_back_in_order_with_every_column(tmp_path: Path) -> None:
    append_side(tmp_path, EVALUATIONS, [_row(), _row(quality_metric="token_top1", quality=3.0)])
    append_side(tmp_path, EVALUATIONS, [_row(evaluation_id="e-2")], sweep_id="s-1")
    frame = read_side(tmp_path, EVALUATIONS)
    assert frame.schema == pl.Schema(EVALUATIONS.schema)
    assert frame["evaluation_id"].to_list() == ["e-1", "e-1", "e-2"]
    assert frame["sweep_id"].to_list() == [None, None, "s-1"]
    assert frame["started_utc"].to_list() == [WHEN] * 3
    assert frame["n_items"].null_count() == 3
    only = read_side(tmp_path, EVALUATIONS, sweeps=["s-1"])
    assert only["evaluation_id"].to_list() == ["e-2"]


def test_nothing_stored_is_an_empty_table(tmp_path: Path) -> None:
    assert read_side(tmp_path, EVALUATIONS).is_empty()
    assert not (tmp_path / "side").exists()


@pytest.mark.parametrize(
    "wrong",
    [{"colour": "red"}, {"quality": "much"}, {"task": "chess"}],
    ids=["column", "type", "word"],
)
def test_a_row_that_does_not_fit_stores_nothing(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="|".join(wrong)):
        append_side(tmp_path, EVALUATIONS, [_row(), _row(**wrong)])
    assert read_side(tmp_path, EVALUATIONS).is_empty()


@pytest.mark.parametrize("sweep_id", [None, "s-1"])
def test_any_damage_is_found_and_repaired(tmp_path: Path, sweep_id: str | None) -> None:
    append_side(tmp_path, EVALUATIONS, [_row()], sweep_id=sweep_id)
    store, name = ResultStore(tmp_path), sweep_id or NO_SWEEP
    before = read_side(tmp_path, EVALUATIONS)
    (path,) = part_files(tmp_path, name, EVALUATIONS.name)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedPartError, match=path.name) as caught:
        read_side(tmp_path, EVALUATIONS)
    assert "repair=true" in caught.value.remedy
    assert repair_sweep(store, name)
    journal = store.open_journal(name).path
    journal.write_bytes(journal.read_bytes().replace(b"stories15M", b"stories16M"))
    assert any("checksum" in fault.text for fault in examine(store, name))
    assert repair_sweep(store, name)
    assert read_side(tmp_path, EVALUATIONS).equals(before)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "here")
    store.create_sweep(SweepRecord(sweep_id="s-1"))
    append_side(store.root, EVALUATIONS, [_row(evaluation_id="of the sweep")], sweep_id="s-1")
    append_side(store.root, EVALUATIONS, [_row(evaluation_id="alone")])
    return store


def _ids(results: Path) -> list[str]:
    return read_side(results, EVALUATIONS)["evaluation_id"].to_list()


def test_rows_of_a_sweep_are_deleted_with_it(store: ResultStore) -> None:
    delete_sweep(store, "s-1")
    assert _ids(store.root) == ["alone"]


def test_rows_are_copied_once_with_and_without_their_sweep(
    store: ResultStore, tmp_path: Path
) -> None:
    new = ResultStore(tmp_path / "new")
    copy_sweep(new, store, "s-1")
    assert _ids(new.root) == ["of the sweep"]
    assert copy_side_rows(new.root, store.root) == 1
    assert copy_side_rows(new.root, store.root) == 0
    assert sorted(_ids(new.root)) == ["alone", "of the sweep"]


def test_sql_sees_them_with_described_columns(tmp_path: Path) -> None:
    results = write_results(tmp_path / "results", repeats=1, n_samples=2)
    append_side(results, EVALUATIONS, [_row()], sweep_id=SWEEP)
    frame = run_query(results, "SELECT * FROM evaluations")
    assert frame.columns == [row.column for row in described_views() if row.view == "evaluations"]
    assert frame.select("model", "quality", "sweep_id").row(0) == ("stories15M", 12.5, SWEEP)


def test_sql_needs_no_measurement_for_them(tmp_path: Path) -> None:
    append_side(tmp_path, EVALUATIONS, [_row()])
    joined = "SELECT count(*) FROM evaluations LEFT JOIN measurements USING (model)"
    assert run_query(tmp_path, joined).item() == 1


def test_commands_check_write_and_copy_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        Workspace.init(folder)
    append_side(there / "results", EVALUATIONS, [_row()])

    def ask(*words: str) -> tuple[int, str, str]:
        ended = run_inside(here, *words, capture=capfd)
        return ended.code, ended.stdout, ended.stderr

    code, out, _ = ask("results", "import", str(there), "--from", "workspace")
    assert (code, has(out, "1 row", "copied")) == (0, True)
    code, out, _ = ask("results", "export", "--table", "evaluations", "--format", "json")
    assert (code, json.loads(out)["quality"]) == (0, 12.5)
    assert ask("results", "verify")[:2] == (0, "rows without a sweep: ok\n")
    (copied,) = part_files(here / "results", NO_SWEEP, EVALUATIONS.name)
    copied.write_bytes(copied.read_bytes()[:-9])
    code, out, err = ask("results", "verify")
    assert (code, "1 fault" in out, str(copied) in err) == (1, True, True)
    assert ask("results", "verify", "--repair")[0] == 0
    code, _, err = ask("results", "export", "--table", "evaluation")
    assert (code, "did you mean 'evaluations'" in err) == (2, True)
