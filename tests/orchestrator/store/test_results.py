import json

import pytest
from stored_part import published_rows

from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.analysis.stored.sweep_record import IMPORTED, RECORD_VERSION, SweepRecord, SweepState
from fleetrank.orchestrator.errors import NewerSchemaError, NothingToDoError, StoreError, UsageError
from fleetrank.orchestrator.store.parts import read_sweeps
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import state_of

SWEEP_ID = "quick-20260102T030405-0a1b"


def _append(store: ResultStore, *rows: dict[str, object]) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        for row in rows:
            journal.append(row)


def test_a_record_is_kept_and_changed(store) -> None:
    store.update_record(SWEEP_ID, {"state": SweepState.FINISHED, "n_ok": 3})
    assert ResultStore(store.root).sweep_record(SWEEP_ID).as_json() == {
        "sweep_id": SWEEP_ID,
        "record_version": RECORD_VERSION,
        "state": "finished",
        "n_ok": 3,
    }
    mark = json.loads((store.root / "schema.json").read_text())
    assert mark["schema_version"] == SCHEMA_VERSION


def test_a_record_cannot_get_an_entry_that_readers_do_not_know(store) -> None:
    with pytest.raises(ValueError, match="n_okay"):
        store.update_record(SWEEP_ID, {"n_okay": 3})
    with pytest.raises(ValueError, match="state"):
        store.update_record(SWEEP_ID, {"state": "done"})


def test_entries_of_a_newer_fleetrank_are_kept(store) -> None:
    path = store.record_path(SWEEP_ID)
    path.write_text(json.dumps({"sweep_id": SWEEP_ID, "mood": "good"}))
    store.update_record(SWEEP_ID, {"n_ok": 1})
    assert json.loads(path.read_text())["mood"] == "good"
    path.write_text(json.dumps({"sweep_id": SWEEP_ID, "record_version": RECORD_VERSION + 1}))
    with pytest.raises(NewerSchemaError, match="record version"):
        store.sweep_record(SWEEP_ID)


def test_an_import_under_way_has_its_own_state(store) -> None:
    made = SweepRecord(sweep_id="i-1", state=SweepState.IMPORTING, origin=IMPORTED)
    store.create_sweep(made)
    found = store.sweep_record("i-1")
    assert found.state is SweepState.IMPORTING
    assert state_of(found, is_running=True) == "running"
    assert state_of(found, is_running=False) == "interrupted"
    store.update_record("i-1", {"n_ok": 1})
    assert store.sweep_record("i-1").state is SweepState.IMPORTING


def test_a_sweep_is_not_created_twice(store) -> None:
    with pytest.raises(StoreError, match="already"):
        store.create_sweep(SweepRecord(sweep_id=SWEEP_ID))


def test_the_newest_sweep_is_the_one_started_last_whatever_its_name(store) -> None:
    store.create_sweep(SweepRecord(sweep_id="a-b-20270101T000000-0000"))
    store.create_sweep(SweepRecord(sweep_id="zz-20250101T000000-0000"))
    assert store.newest_sweep() == "a-b-20270101T000000-0000"
    assert store.sweep_ids()[0] == "zz-20250101T000000-0000"


def test_no_sweep_at_all_is_nothing_to_do(tmp_path) -> None:
    with pytest.raises(NothingToDoError):
        ResultStore(tmp_path / "none").newest_sweep()
    assert not (tmp_path / "none").exists()


def test_a_misspelt_sweep_is_answered_with_the_nearest(store) -> None:
    with pytest.raises(UsageError) as caught:
        store.sweep_record("quik-20260102T030405-0a1b")
    assert SWEEP_ID in caught.value.remedy


@pytest.mark.parametrize("name", ["../../etc/passwd", "", ".hidden", "a/b", "a\x00b", "a\n"])
def test_an_id_does_not_lead_out_of_the_folder(store, name) -> None:
    with pytest.raises(UsageError):
        store.sweep_record(name)
    with pytest.raises(UsageError):
        store.parts_folder(name)


def test_a_damaged_record_is_a_store_error(store) -> None:
    store.record_path(SWEEP_ID).write_text("{", encoding="utf-8")
    with pytest.raises(StoreError, match="damaged"):
        store.sweep_record(SWEEP_ID)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (json.dumps({"schema_version": SCHEMA_VERSION + 1}), NewerSchemaError),
        ("{", StoreError),
        ("{}", StoreError),
        ('{"schema_version": "x"}', StoreError),
    ],
)
def test_results_of_a_newer_schema_or_a_damaged_mark_are_refused(tmp_path, text, kind) -> None:
    (tmp_path / "schema.json").write_text(text, encoding="utf-8")
    with pytest.raises(kind) as caught:
        ResultStore(tmp_path)
    assert str(tmp_path) in caught.value.message


def test_publishing_makes_parquet_of_the_journal(store, new_row) -> None:
    _append(store, new_row(), new_row(repeat=1))
    assert store.publish(SWEEP_ID) == 1
    assert store.publish(SWEEP_ID) == 0
    assert [row["repeat"] for row in published_rows(store.root, SWEEP_ID)] == [0, 1]
    assert store.history() == {"0123456789abcdef": 2.0}


def test_times_of_a_clock_that_was_set_are_no_estimate(store, new_row) -> None:
    for repeat, finished in enumerate(("2025-12-30T00:00:00+00:00", "2027-01-01T00:00:00+00:00")):
        _append(store, new_row(repeat=repeat, finished_utc=finished))
    store.publish(SWEEP_ID)
    assert store.history() == {}


def test_a_damaged_part_costs_the_estimate_and_nothing_else(store, new_row) -> None:
    _append(store, new_row())
    store.publish(SWEEP_ID)
    (part,) = store.parts_folder(SWEEP_ID).iterdir()
    part.write_bytes(b"PAR1 damaged")
    assert store.history() == {}
    with pytest.raises(StoreError, match="damaged"):
        read_sweeps(store.root, [SWEEP_ID])
