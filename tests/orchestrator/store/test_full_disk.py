"""A full disk, made with the system's own limit on the size of a file."""

import gzip
import os

import pytest
from full_disk import no_room_beyond
from stored_part import published_rows

from fleetrank.analysis.stored.sweep_record import SweepRecord, SweepState
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.store.journal import JournalProblem
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import JournalSink

SWEEP_ID = "quick-20260102T030405-0a1b"


def test_nothing_appended_is_lost_when_the_disk_fills_up(store, new_row) -> None:
    journal = store.open_journal(SWEEP_ID)
    n_appended = 0

    def append_until_full() -> None:
        nonlocal n_appended
        for repeat in range(1000):
            n_appended = repeat + 1
            journal.append(new_row(repeat=repeat))

    with no_room_beyond(20_000):
        with pytest.raises(StoreError, match="file size limit") as caught:
            append_until_full()
        assert "ulimit -f" in caught.value.remedy
        with pytest.raises(StoreError):
            journal.flush()
        assert len(list(store.open_journal(SWEEP_ID).rows())) == n_appended - 1
    journal.close()
    repeats = [row["repeat"] for row in store.open_journal(SWEEP_ID).rows()]
    assert repeats == list(range(n_appended))
    assert not any(isinstance(item, JournalProblem) for item in store.open_journal(SWEEP_ID).scan())


def test_a_row_whose_log_has_no_room_is_kept_with_its_log(store, new_row) -> None:
    log = os.urandom(30_000).hex()
    with store.open_journal(SWEEP_ID) as journal:
        sink = JournalSink(store, journal)
        with no_room_beyond(20_000):
            with pytest.raises(StoreError, match="file size limit"):
                sink.append(new_row(raw_log=log))
            with pytest.raises(StoreError, match="file size limit"):
                sink.flush()
        sink.append(new_row(repeat=1))
        sink.flush()
    first, second = store.open_journal(SWEEP_ID).rows()
    assert gzip.decompress((store.root / first["raw_log"]).read_bytes()).decode() == log
    assert (second["repeat"], second["raw_log"]) == (1, None)


def test_parts_and_records_stay_as_they_were_when_the_disk_is_full(store, new_row) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row())
    store.publish(SWEEP_ID)
    with store.open_journal(SWEEP_ID) as journal:
        journal.append(new_row(repeat=1))
    with no_room_beyond(10):
        with pytest.raises(StoreError, match="file size limit"):
            store.publish(SWEEP_ID)
        with pytest.raises(StoreError, match="file size limit"):
            store.update_record(SWEEP_ID, {"state": SweepState.FINISHED})
    folder = store.parts_folder(SWEEP_ID)
    assert [row["repeat"] for row in published_rows(store.root, SWEEP_ID)] == [0]
    assert [path.name for path in folder.iterdir()] == ["part-000000000000.parquet"]
    assert store.sweep_record(SWEEP_ID).state is SweepState.RUNNING
    store.publish(SWEEP_ID)
    assert [row["repeat"] for row in published_rows(store.root, SWEEP_ID)] == [0, 1]


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path, new_row) -> None:
    (tmp_path / "results").write_text("a file")
    store = ResultStore(tmp_path / "results")
    with pytest.raises(StoreError, match="cannot be written"):
        store.create_sweep(SweepRecord(sweep_id=SWEEP_ID))
    with pytest.raises(StoreError, match="cannot be written"):
        store.open_journal(SWEEP_ID).append(new_row())
