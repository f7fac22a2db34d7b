import contextlib
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.store import journal as journal_module
from fleetrank.orchestrator.store.health import examine, repair_sweep
from fleetrank.orchestrator.store.journal import JournalTail
from fleetrank.orchestrator.store.results import ResultStore

pytestmark = pytest.mark.slow

SWEEP_ID = "quick-20260102T030405-0a1b"


@pytest.fixture(autouse=True)
def _small_journals_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "WORTH_PACKING_BYTES", 1)


@pytest.fixture
def store(tmp_path: Path, new_row) -> ResultStore:
    store = ResultStore(tmp_path)
    store.create_sweep(SweepRecord(sweep_id=SWEEP_ID))
    _append(store, *(new_row(repeat=number) for number in range(3)))
    return store


def _append(store: ResultStore, *rows: dict[str, object]) -> None:
    with store.open_journal(SWEEP_ID) as journal:
        for row in rows:
            journal.append(row)
    store.publish(SWEEP_ID)


def _repeats(store: ResultStore) -> list[object]:
    return [row["repeat"] for row in store.open_journal(SWEEP_ID).rows()]


def test_a_packed_journal_has_the_same_rows(store) -> None:
    journal = store.open_journal(SWEEP_ID)
    before = list(journal.rows())
    assert store.open_journal(SWEEP_ID).pack()
    assert not journal.path.exists()
    assert list(store.open_journal(SWEEP_ID).rows()) == before
    assert examine(store, SWEEP_ID) == []


def test_rows_that_come_later_are_read_and_packed_too(store, new_row) -> None:
    for repeat in (3, 4):
        store.open_journal(SWEEP_ID).pack()
        _append(store, new_row(repeat=repeat))
        assert _repeats(store) == list(range(repeat + 1))
        assert examine(store, SWEEP_ID) == []
    assert store.open_journal(SWEEP_ID).pack()
    assert not store.open_journal(SWEEP_ID).pack()
    assert _repeats(store) == [0, 1, 2, 3, 4]


def test_a_small_journal_stays_as_it_is(store, monkeypatch) -> None:
    path = store.open_journal(SWEEP_ID).path
    before = path.read_bytes()
    monkeypatch.setattr(journal_module, "WORTH_PACKING_BYTES", len(before) + 1)
    assert not store.open_journal(SWEEP_ID).pack()
    assert path.read_bytes() == before


def test_lines_stay_where_the_packed_file_reads_back_as_another(store, monkeypatch) -> None:
    journal = store.open_journal(SWEEP_ID)
    before = journal.path.read_bytes()
    broken = gzip.compress(before[:-1])
    monkeypatch.setattr(
        journal_module, "replace_file_with", lambda path, _write: path.write_bytes(broken)
    )
    with pytest.raises(StoreError, match="not written well"):
        journal.pack()
    assert journal.path.read_bytes() == before


class _Killed(BaseException):
    pass


def _killed_at(number: int) -> Callable[..., None]:
    """Does what the system does until a call, and then no more."""
    real = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}
    calls = iter(range(1, 1000))

    def die(name: str) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            if next(calls) >= number:
                raise _Killed
            return real[name](*arguments, **options)

        return call

    return die


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 12))
def test_killed_at_any_step_it_loses_and_doubles_no_row(
    store, new_row, monkeypatch, number
) -> None:
    tail = JournalTail(store.open_journal(SWEEP_ID).path)
    seen = [row["repeat"] for row in tail.new_rows()]
    die = _killed_at(number)
    with monkeypatch.context() as patch:
        for name in ("fsync", "replace", "unlink"):
            patch.setattr(os, name, die(name))
        with contextlib.suppress(_Killed):
            store.open_journal(SWEEP_ID).pack()
    assert _repeats(store) == [0, 1, 2]
    assert examine(store, SWEEP_ID) == []
    _append(store, new_row(repeat=3))
    assert _repeats(store) == [0, 1, 2, 3]
    store.open_journal(SWEEP_ID).pack()
    assert _repeats(store) == [0, 1, 2, 3]
    assert seen + [row["repeat"] for row in tail.new_rows()] == [0, 1, 2, 3]


def test_a_damaged_packed_journal_is_refused_and_made_again_from_the_parts(store) -> None:
    store.open_journal(SWEEP_ID).pack()
    before = list(store.open_journal(SWEEP_ID).rows())
    path = store.open_journal(SWEEP_ID).packed_path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged") as caught:
        list(store.open_journal(SWEEP_ID).rows())
    assert "`repair=true`" in caught.value.remedy
    assert [str(path) in fault.text for fault in examine(store, SWEEP_ID)] == [True, False]
    (done,) = repair_sweep(store, SWEEP_ID)
    assert "3 rows" in done
    assert examine(store, SWEEP_ID) == []
    assert list(store.open_journal(SWEEP_ID).rows()) == before
    assert (path.parent / f"{path.name}.damaged").read_bytes() == content


def test_a_watcher_sees_each_row_once_whatever_becomes_of_the_journal(store, new_row) -> None:
    tail = JournalTail(store.open_journal(SWEEP_ID).path)
    seen: list[object] = []
    for repeat in (3, 4, 5):
        if repeat != 4:
            seen += [row["repeat"] for row in tail.new_rows()]
        _append(store, new_row(repeat=repeat))
        store.open_journal(SWEEP_ID).pack()
    _append(store, new_row(repeat=6))
    seen += [row["repeat"] for row in tail.new_rows()]
    assert seen == list(range(7))
    assert list(tail.new_rows()) == []
