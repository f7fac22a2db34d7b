import json
from pathlib import Path

import pytest
from stored_part import published_rows
from wording import has

from fleetrank.analysis.stored.evaluations import EVALUATIONS
from fleetrank.analysis.stored.part_list import list_path
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.store.health import KEEP, examine, repair_sweep
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import side_lines

pytestmark = pytest.mark.slow

SWEEP_ID = "quick-20260102T030405-0a1b"


@pytest.fixture
def store(tmp_path: Path, new_row) -> ResultStore:
    store = ResultStore(tmp_path)
    store.create_sweep(SweepRecord(sweep_id=SWEEP_ID))
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row())
        journal.append(new_row(repeat=1, samples_ns=None, status="failed"))
    store.publish(SWEEP_ID)
    return store


@pytest.mark.parametrize(
    ("column", "value"),
    [("latency_p50_ns", 25.1), ("latency_std_ns", None), ("sample_count", 5)],
)
def test_a_summary_that_its_samples_contradict_is_a_fault(tmp_path, new_row, column, value) -> None:
    store = ResultStore(tmp_path)
    store.create_sweep(SweepRecord(sweep_id=SWEEP_ID))
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row(**{column: value}))
    store.publish(SWEEP_ID)
    (fault,) = examine(store, SWEEP_ID)
    assert column in fault.text


def test_a_row_missing_in_parquet_is_a_fault(store, new_row) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row(repeat=2))
    (fault,) = examine(store, SWEEP_ID)
    assert "1 row in the journal only" in fault.text
    assert repair_sweep(store, SWEEP_ID) == ["1 part written"]
    assert examine(store, SWEEP_ID) == []


def test_a_row_stored_twice_is_a_fault_and_repaired_once(store, new_row) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row())
    store.publish(SWEEP_ID)
    (fault,) = examine(store, SWEEP_ID)
    assert "repeat 1, attempt 1: stored twice" in fault.text
    assert repair_sweep(store, SWEEP_ID)
    assert examine(store, SWEEP_ID) == []
    assert repeats(store) == [0, 1]


def test_a_damaged_journal_line_is_a_fault(store) -> None:
    path = store.open_journal(SWEEP_ID).path
    path.write_bytes(path.read_bytes() + b"garbage\n")
    (fault,) = examine(store, SWEEP_ID)
    assert "line 3" in fault.text


def test_rows_that_the_journal_lost_come_back_from_the_parts(store) -> None:
    path = store.open_journal(SWEEP_ID).path
    path.write_bytes(path.read_bytes()[:-30])
    torn, lost = examine(store, SWEEP_ID)
    assert "half a row" in torn.text
    assert has(lost.text, "2 rows", "Parquet")
    assert {torn.remedy, lost.remedy} == {KEEP}
    with pytest.raises(StoreError, match="is not the journal"):
        store.publish(SWEEP_ID)
    assert repair_sweep(store, SWEEP_ID)
    assert repeats(store) == [0, 1]
    assert examine(store, SWEEP_ID) == []


@pytest.mark.parametrize("keeps_list", [True, False])
def test_a_deleted_journal_comes_back_only_if_the_parts_are_known(store, keeps_list) -> None:
    store.open_journal(SWEEP_ID).path.unlink()
    if not keeps_list:
        list_path(store.root, SWEEP_ID).unlink()
    assert examine(store, SWEEP_ID)
    assert bool(repair_sweep(store, SWEEP_ID)) is keeps_list
    assert (examine(store, SWEEP_ID) == []) is keeps_list
    assert len(list(store.parts_folder(SWEEP_ID).glob("*.parquet"))) == 1


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("{")])
def test_a_damaged_list_of_parts_is_made_again_from_the_journal(store, damage) -> None:
    damage(list_path(store.root, SWEEP_ID))
    assert "parts is" in examine(store, SWEEP_ID)[0].text
    assert repair_sweep(store, SWEEP_ID)
    assert examine(store, SWEEP_ID) == []
    assert [row["repeat"] for row in published_rows(store.root, SWEEP_ID)] == [0, 1]


def test_a_repair_keeps_rows_after_a_damage_that_moved_them(store, new_row) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row(repeat=2))
        rows = [{"model": "a"}, {"model": "b"}]
        journal.append_lines(side_lines(EVALUATIONS, rows, SWEEP_ID))
    path = store.open_journal(SWEEP_ID).path
    path.write_bytes(path.read_bytes()[:20] + b"x" + path.read_bytes()[20:])
    assert repair_sweep(store, SWEEP_ID)
    assert examine(store, SWEEP_ID) == []
    assert repeats(store) == [0, 1, 2]
    assert read_side(store.root, EVALUATIONS)["model"].to_list() == ["a", "b"]


def test_only_a_part_whose_rows_the_journal_has_is_given_up(store) -> None:
    (part,) = store.parts_folder(SWEEP_ID).iterdir()
    part.write_bytes(part.read_bytes()[:-9])
    (fault,) = examine(store, SWEEP_ID)
    assert str(part) in fault.text
    assert "from the journal" in fault.remedy
    store.open_journal(SWEEP_ID).path.write_bytes(b"")
    assert all("delete nothing" in fault.remedy for fault in examine(store, SWEEP_ID))


def repeats(store: ResultStore) -> list[object]:
    return sorted(row["repeat"] for row in store.open_journal(SWEEP_ID).rows())


def _replaced(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def test_a_changed_value_of_the_journal_is_a_fault_and_repaired_from_the_part(store) -> None:
    before = list(store.open_journal(SWEEP_ID).rows())
    path = store.open_journal(SWEEP_ID).path
    _replaced(path, b'"load_ns":7', b'"load_ns":8')
    texts = [fault.text for fault in examine(store, SWEEP_ID)]
    assert has(texts[0], "line 1", "checksum")
    (done,) = repair_sweep(store, SWEEP_ID)
    assert "2 rows" in done
    assert examine(store, SWEEP_ID) == []
    assert sorted(row["repeat"] for row in store.open_journal(SWEEP_ID).rows()) == [0, 1]
    assert sorted(map(repr, store.open_journal(SWEEP_ID).rows())) == sorted(map(repr, before))
    assert path.with_name(f"{path.name}.damaged").exists()


def test_any_flip_in_a_part_is_a_fault_and_the_part_is_made_again(store) -> None:
    (part,) = store.parts_folder(SWEEP_ID).iterdir()
    before = published_rows(store.root, SWEEP_ID)
    content = bytearray(part.read_bytes())
    content[len(content) - 2000] ^= 16  # a statistic or a name in the footer
    part.write_bytes(content)
    (fault,) = examine(store, SWEEP_ID)
    assert fault.text == f"{part} is damaged"
    with pytest.raises(StoreError, match="is damaged"):
        published_rows(store.root, SWEEP_ID)
    (done,) = repair_sweep(store, SWEEP_ID)
    assert "again from the journal" in done
    assert examine(store, SWEEP_ID) == []
    assert published_rows(store.root, SWEEP_ID) == before
    assert part.with_name(f"{part.name}.damaged").read_bytes() == content


def test_where_both_sides_are_damaged_nothing_is_touched(store) -> None:
    (part,) = store.parts_folder(SWEEP_ID).iterdir()
    part.write_bytes(part.read_bytes()[:-9])
    _replaced(store.open_journal(SWEEP_ID).path, b'"load_ns":7', b'"load_ns":8')
    before = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}
    assert repair_sweep(store, SWEEP_ID) == []
    assert any("delete nothing" in fault.remedy for fault in examine(store, SWEEP_ID))
    assert {p: p.read_bytes() for p in store.root.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("finished", "fjnished"),
        lambda text: text.replace('"n_ok": 2', '"n_ok": 3'),
    ],
)
def test_a_damaged_record_is_a_fault_of_its_sweep(store, damage) -> None:
    store.update_record(SWEEP_ID, {"state": "finished", "n_ok": 2})
    path = store.record_path(SWEEP_ID)
    path.write_text(damage(path.read_text()))
    (fault,) = examine(store, SWEEP_ID)
    assert str(path) in fault.text
    assert "restore it" in fault.remedy


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "fjnished"},
        {"n_ok": "2"},
        {"started_utc": "2026-13-01T00:00:00+00:00"},
        {"spec": {"name": "t", "models": ["resnet18"], "repeets": 3}},
        {"plan": {"n_cells": -1, "repeats": 2, "sha256": {}}},
        {"sweep_id": "other"},
    ],
)
def test_a_record_without_a_checksum_is_held_against_its_schema(store, wrong) -> None:
    record = {"sweep_id": SWEEP_ID, "state": "finished", **wrong}
    store.record_path(SWEEP_ID).write_text(json.dumps(record))
    (fault,) = examine(store, SWEEP_ID)
    assert next(iter(wrong)) in fault.text


def test_a_list_of_faults_has_an_end(store) -> None:
    with store.open_journal(SWEEP_ID).path.open("ab") as file:
        file.write(b"garbage\n" * 98)
    faults = examine(store, SWEEP_ID)
    assert len(faults) == 21
    assert "78 more" in faults[-1].text
