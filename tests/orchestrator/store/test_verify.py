from pathlib import Path

import pytest

from orchestrator.store.health.verify import KEEP, find_faults
from orchestrator.store.part_reader import read_rows
from orchestrator.store.parts import publish_parts
from orchestrator.store.results import ResultStore

SWEEP_ID = "s-20260102T030405-0a1b"


@pytest.fixture
def store(tmp_path: Path, new_row) -> ResultStore:
    store = ResultStore(tmp_path)
    store.create_sweep(SWEEP_ID, {})
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row())
        journal.append(new_row(repeat=1, samples_ns=None, status="failed"))
    store.publish(SWEEP_ID)
    return store


def test_what_was_stored_by_us_has_no_faults(store) -> None:
    assert find_faults(store, SWEEP_ID) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [("latency_p50_ns", 25.1), ("latency_std_ns", None), ("sample_count", 5)],
)
def test_a_summary_that_its_samples_contradict_is_a_fault(tmp_path, new_row, column, value) -> None:
    store = ResultStore(tmp_path)
    store.create_sweep(SWEEP_ID, {})
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row(**{column: value}))
    store.publish(SWEEP_ID)
    (fault,) = find_faults(store, SWEEP_ID)
    assert column in fault.text


def test_a_row_missing_in_parquet_is_a_fault(store, new_row) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row(repeat=2))
    (fault,) = find_faults(store, SWEEP_ID)
    assert "repeat 2" in fault.text


def test_a_row_stored_twice_is_a_fault(store, new_row) -> None:
    other = store.root / "other"
    publish_parts(other, iter([new_row()]))
    target = store.parts_folder(SWEEP_ID) / "part-00000009.parquet"
    target.write_bytes((other / "part-00000000.parquet").read_bytes())
    (fault,) = find_faults(store, SWEEP_ID)
    assert "stored twice" in fault.text


def test_a_damaged_journal_line_is_a_fault(store) -> None:
    path = store.open_journal(SWEEP_ID).path
    path.write_bytes(path.read_bytes() + b"garbage\n")
    (fault,) = find_faults(store, SWEEP_ID)
    assert "line 3" in fault.text


def test_parts_that_have_what_the_journal_lost_are_kept(store) -> None:
    path = store.open_journal(SWEEP_ID).path
    path.write_bytes(path.read_bytes()[:-30])
    torn, lost = find_faults(store, SWEEP_ID)
    assert "half a row" in torn.text
    assert "1 row of the Parquet parts" in lost.text
    assert {torn.remedy, lost.remedy} == {KEEP}
    store.publish(SWEEP_ID)
    store.compact(SWEEP_ID)
    assert len(list(read_rows(store.parts_folder(SWEEP_ID)))) == 2


def test_only_a_part_whose_rows_the_journal_has_is_given_up(store) -> None:
    part = next(store.parts_folder(SWEEP_ID).iterdir())
    content = part.read_bytes()
    part.write_bytes(content[:-9])
    (fault,) = find_faults(store, SWEEP_ID)
    assert str(part) in fault.text
    assert "results compact" in fault.remedy
    (store.parts_folder(SWEEP_ID) / "part-00000009.parquet").write_bytes(content)
    path = store.open_journal(SWEEP_ID).path
    path.write_bytes(b"")
    assert all("delete nothing" in fault.remedy for fault in find_faults(store, SWEEP_ID))


def test_a_part_that_was_edited_is_made_again_from_the_journal(store, new_row) -> None:
    part = next(store.parts_folder(SWEEP_ID).iterdir())
    part.unlink()
    other = [new_row(latency_p50_ns=1.0), new_row(repeat=1, samples_ns=None, status="failed")]
    publish_parts(store.parts_folder(SWEEP_ID), iter(other))
    (fault,) = find_faults(store, SWEEP_ID)
    assert "made again from the journal" in fault.remedy
