"""Rows of a running sweep reach Parquet bit by bit, each once, whatever goes wrong between."""

from collections.abc import Callable
from pathlib import Path

import pytest
from stored_part import published_rows

from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.rows import Row
from fleetrank.orchestrator.store import journal as journal_module
from fleetrank.orchestrator.store import parts as parts_module
from fleetrank.orchestrator.store.journal import Entry, make_line
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import JournalSink

pytestmark = pytest.mark.slow

SWEEP_ID = "quick-20260102T030405-0a1b"
NewRow = Callable[..., Row]


def published(store: ResultStore) -> list[object]:
    return [row["repeat"] for row in published_rows(store.root, SWEEP_ID)]


def test_each_time_only_what_came_since_is_read(
    store: ResultStore, new_row: NewRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "STRETCH_BYTES", 3 * len(make_line(new_row())))
    parsed: list[int] = []
    parse = journal_module.parse_line

    def watched(line: bytes, sweep_id: str) -> Entry:
        parsed[-1] += 1
        return parse(line, sweep_id)

    monkeypatch.setattr(journal_module, "parse_line", watched)
    with store.open_journal(SWEEP_ID) as journal:
        sink = JournalSink(store, journal)
        for first, last in ((0, 2), (2, 4), (4, 4), (4, 9)):
            for repeat in range(first, last):
                sink.append(new_row(repeat=repeat))
            parsed.append(0)
            sink.publish()
            assert published(store) == list(range(last))
    assert parsed == [2, 2, 0, 5]
    assert store.publish(SWEEP_ID) == 0


def test_after_an_error_nothing_is_missing_and_nothing_twice(
    store: ResultStore, new_row: NewRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "STRETCH_BYTES", 2 * len(make_line(new_row())))
    write = parts_module.replace_file
    writes: list[Path] = []

    def second_fails(path: Path, content: bytes) -> None:
        writes.append(path)
        if len(writes) == 2:
            raise StoreError("the disk is full", "free some space")
        write(path, content)

    with store.open_journal(SWEEP_ID) as journal:
        sink = JournalSink(store, journal)
        sink.append(new_row(repeat=0))
        sink.publish()
        for repeat in range(1, 7):
            sink.append(new_row(repeat=repeat))
        monkeypatch.setattr(parts_module, "replace_file", second_fails)
        with pytest.raises(StoreError):
            sink.publish()
        assert len(published(store)) < 7
        sink.append(new_row(repeat=7))
        sink.publish()
    assert sorted(map(int, map(str, published(store)))) == list(range(8))


def test_a_second_driver_of_the_sweep_looks_for_every_row(
    store: ResultStore, new_row: NewRow
) -> None:
    for repeats in (range(2), range(2, 5)):
        with store.open_journal(SWEEP_ID) as journal:
            sink = JournalSink(store, journal)
            for repeat in repeats:
                sink.append(new_row(repeat=repeat))
            sink.publish()
    assert published(store) == list(range(5))
