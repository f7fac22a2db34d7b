from pathlib import Path

import pytest

from orchestrator.store.parts import publish_parts
from orchestrator.store.results import ResultStore
from orchestrator.store.verify import find_faults

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
    assert column in fault


def test_a_row_missing_in_parquet_is_a_fault(store, new_row) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row(repeat=2))
    (fault,) = find_faults(store, SWEEP_ID)
    assert "repeat 2" in fault


def test_a_row_stored_twice_is_a_fault(store, new_row) -> None:
    other = store.root / "other"
    publish_parts(other, iter([new_row()]))
    target = store.parts_folder(SWEEP_ID) / "part-00000009.parquet"
    target.write_bytes((other / "part-00000000.parquet").read_bytes())
    (fault,) = find_faults(store, SWEEP_ID)
    assert "stored twice" in fault


def test_a_damaged_journal_line_is_a_fault(store) -> None:
    path = store.open_journal(SWEEP_ID).path
    path.write_bytes(path.read_bytes() + b"garbage\n")
    (fault,) = find_faults(store, SWEEP_ID)
    assert "line 3" in fault
