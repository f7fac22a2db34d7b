import json
from pathlib import Path

import pytest
from wording import has

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.device_agents.android.execution.program_run import encode_log
from fleetrank.device_agents.android.programs.phone_program import ProgramCall, ProgramOutput
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.store.health import examine
from fleetrank.orchestrator.store.reparse import reparse_sweep, store_reparsed
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import set_aside
from fleetrank.orchestrator.workspace.workspace import Workspace

SWEEP_ID = "quick-20260102T030405-0a1b"
TEXT = (Path(__file__).parents[2] / "data" / "benchmark_model" / "litert.txt").read_text()


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Workspace:
    workspace = Workspace.init(tmp_path / "w")
    monkeypatch.chdir(workspace.root)
    return workspace


@pytest.fixture
def store(workspace) -> ResultStore:
    store = ResultStore(workspace.results)
    store.create_sweep(SweepRecord(sweep_id=SWEEP_ID))
    return store


def keep(store: ResultStore, row, text: str = TEXT, **changes: object) -> None:
    program_call = ProgramCall(argv=("/t/benchmark_model", "--use_xnnpack=true"))
    output = ProgramOutput(run=program_call, exit_code=0, stdout=text, stderr="")
    fields = {"raw_log": encode_log(output), **changes}
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(
            set_aside(store.root, row(runtime="tflite", samples_ns=None, **fields)) | changes
        )
    store.publish(SWEEP_ID)


def attempts(store: ResultStore) -> list[dict[str, object]]:
    return list(store.open_journal(SWEEP_ID).rows())


def test_a_failed_reading_becomes_a_good_attempt_beside_it(store, new_row) -> None:
    keep(store, new_row, status="failed", error_kind="bad_output", error_message="half")
    items = reparse_sweep(store, SWEEP_ID)
    assert store_reparsed(store, SWEEP_ID, items) == 1
    old, new = attempts(store)
    assert (old["status"], old["attempt"]) == ("failed", 0)
    assert (new["status"], new["attempt"], new["error_message"]) == ("ok", 1, None)
    assert (new["latency_p50_ns"], new["sample_count"]) == (8_541_000.0, 117)
    assert new["started_utc"] == old["started_utc"]
    assert json.loads(str(new["runtime_settings"]))["reparsed_attempt"] == 0
    assert examine(store, SWEEP_ID) == []


def test_reading_again_changes_nothing_more(store, new_row) -> None:
    keep(store, new_row, latency_p50_ns=1.0)
    store_reparsed(store, SWEEP_ID, reparse_sweep(store, SWEEP_ID))
    assert len(attempts(store)) == 2
    (item,) = reparse_sweep(store, SWEEP_ID)
    assert (item.new, item.changes, item.refusal) == (None, (), None)


def test_what_the_phones_state_spoiled_stays_failed(store, new_row) -> None:
    keep(store, new_row, status="failed", error_kind="device_lost")
    assert reparse_sweep(store, SWEEP_ID) == []


def test_a_good_row_whose_log_is_refused_now_is_told_and_not_touched(store, new_row) -> None:
    keep(store, new_row, text="garbage")
    (item,) = reparse_sweep(store, SWEEP_ID)
    assert "not a result" in (item.refusal or "")
    assert store_reparsed(store, SWEEP_ID, [item]) == 0


def test_a_log_outside_the_results_is_not_read(store, new_row) -> None:
    keep(store, new_row, raw_log="../../outside.log")
    (item,) = reparse_sweep(store, SWEEP_ID)
    assert "logs lie in" in (item.refusal or "")


@pytest.mark.slow
def test_only_write_stores(workspace, store, new_row, capsys) -> None:
    keep(store, new_row, latency_p50_ns=1.0)
    assert run(["results", "verify", "--reparse"]) == 0
    shown = capsys.readouterr().out
    assert "latency_p50_ns" in shown
    assert has(shown, "1 log", "1 attempt", "nothing stored")
    assert len(attempts(store)) == 1
    assert run(["results", "verify", SWEEP_ID, "--reparse", "--repair", "--json"]) == 0
    changed = {line["column"]: line["after"] for line in json.loads(capsys.readouterr().out)}
    assert changed["latency_p50_ns"] == 8_541_000.0
    assert len(attempts(store)) == 2
    assert run(["results", "verify"]) == 0


def test_without_raw_logs_there_is_nothing_to_do(workspace, store, new_row) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row())
    assert run(["results", "verify", "--reparse"]) == 4
