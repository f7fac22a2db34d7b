"""Rows of another sweep, and rows that no column holds: named, never published, repaired once."""

from pathlib import Path

import orjson
import pytest
from wording import has

from fleetrank.analysis.errors import AnalysisError, DamagedPartError
from fleetrank.analysis.stored.exclusions import COPY, FILE, read_exclusions
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.part_list import list_path
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.foundation.checksums import KEY, marked_checksum
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.housekeeping import Step, copy_sweep, plan_merge
from fleetrank.orchestrator.store.health import examine, repair_sweep
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import exclude

A, B = "a-20260102T030405-0a1b", "b-20260102T030405-0a1b"
N = 3


@pytest.fixture
def store(tmp_path: Path, new_row) -> ResultStore:
    """Two sweeps of three rows each."""
    store = ResultStore(tmp_path)
    for sweep_id in (A, B):
        store.create_sweep(SweepRecord(sweep_id=sweep_id))
        with store.open_journal(sweep_id) as journal:
            for repeat in range(N):
                journal.append(new_row(sweep_id=sweep_id, repeat=repeat))
        store.publish(sweep_id)
    return store


def exchange(first: Path, second: Path) -> None:
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def parts_of(store: ResultStore) -> list[Path]:
    return [next(store.parts_folder(one).glob("*.parquet")) for one in (A, B)]


def journals_of(store: ResultStore) -> list[Path]:
    return [store.open_journal(one).path for one in (A, B)]


def lists_of(store: ResultStore) -> list[Path]:
    return [list_path(store.root, one) for one in (A, B)]


def texts(store: ResultStore, sweep_id: str = A) -> str:
    return "\n".join(fault.text for fault in examine(store, sweep_id))


def rows_after_repair(store: ResultStore) -> list[int]:
    for sweep_id in (A, B):
        assert repair_sweep(store, sweep_id)
        assert repair_sweep(store, sweep_id) == [], "nothing is left to repair"
        assert texts(store, sweep_id) == ""
    frame = load_measurements(store.root).collect()
    return [frame.filter(sweep_id=sweep_id).height for sweep_id in (A, B)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("places", "said"),
    [
        ("parts", "parquet is damaged"), ("journal", f"foreign row, of sweep '{B}'"),
        ("journal list parts", ""), ("journal list", ""), ("journal parts", ""),
        ("list parts", ""), ("list", ""),
    ],
)  # fmt: skip
def test_files_that_changed_places_lose_and_double_no_row(store, places: str, said: str) -> None:
    files = {"journal": journals_of, "list": lists_of, "parts": parts_of}
    for place in places.split():
        exchange(*files[place](store))
    assert said in texts(store)
    if places == "parts":
        with pytest.raises(DamagedPartError, match="is damaged"):
            load_measurements(store.root)
    assert rows_after_repair(store) == [N, N]


@pytest.mark.slow
def test_rows_in_the_journal_of_another_sweep_come_home_when_their_sweep_is_free(store) -> None:
    mine, other = journals_of(store)
    other.write_bytes(other.read_bytes() + mine.read_bytes())
    for path in (mine, lists_of(store)[0], parts_of(store)[0]):
        path.unlink()
    with store.lease(A):
        assert repair_sweep(store, B) == []
    assert texts(store, B).count("foreign row") == N
    assert f"{N} rows moved to {mine.name}" in repair_sweep(store, B)
    assert load_measurements(store.root).collect().height == 2 * N
    assert texts(store, A) + texts(store, B) == ""


@pytest.mark.slow
def test_parts_with_more_rows_than_the_journal_are_not_put_aside(store, new_row) -> None:
    old = {path: path.read_bytes() for path in (journals_of(store)[0], lists_of(store)[0])}
    with store.open_journal(A) as journal:
        journal.append(new_row(sweep_id=A, repeat=N))
    store.publish(A)
    for path, content in old.items():
        path.write_bytes(content)
    assert repair_sweep(store, A) == []
    assert has(texts(store), "1 row", "unlisted parts")


@pytest.mark.slow
def test_a_journal_that_was_appended_to_another_is_never_published(store) -> None:
    mine, other = journals_of(store)
    mine.write_bytes(mine.read_bytes() + other.read_bytes())
    assert texts(store).count("foreign row") == N
    assert store.publish(A) == 0
    assert load_measurements(store.root, sweep=A).collect().height == N
    merging = plan_merge(ResultStore(store.root / "new"), store)
    assert [one.step for one in merging] == [Step.REFUSE, Step.COPY]
    assert "repair=true" in str(merging[0].reason)


def misfit_line(row: dict[str, object], **values: object) -> bytes:
    """A whole line, as a program writes that knows our form and no column."""
    body = orjson.dumps({"table": "measurements"} | row | values)
    return body[:-1] + f',"{KEY}":"{marked_checksum(body)}"}}\n'.encode()


@pytest.mark.slow
@pytest.mark.parametrize("values", [{"load_ns": 2**63}, {"started_utc": "yesterday"}])
def test_a_row_that_no_column_holds_is_put_aside_once(store, new_row, values, caplog) -> None:
    path = store.open_journal(A).path
    row = new_row(sweep_id=A, repeat=7)
    with path.open("ab") as file:
        file.write(misfit_line(row, **values))
    with store.open_journal(A) as journal:
        journal.append(new_row(sweep_id=A, repeat=8))
    store.publish(A)
    assert [row["repeat"] for row in store.open_journal(A).rows()] == [0, 1, 2, 8]
    assert "1 line left out, line 4" in caplog.text
    assert load_measurements(store.root, sweep=A).collect().height == N + 1
    assert "fit the table" in texts(store)
    assert plan_merge(ResultStore(store.root / "new"), store)[0].step is Step.REFUSE
    assert len(repair_sweep(store, A)) == 1
    assert repair_sweep(store, A) == []
    assert len(list(path.parent.glob("*.damaged*"))) == 1
    assert texts(store) == ""


def test_a_deleted_part_is_missed_until_its_rows_are_back(store) -> None:
    parts_of(store)[0].unlink()
    assert "is missing" in texts(store)
    for sweep in (A, None):
        with pytest.raises(DamagedPartError, match="is missing"):
            load_measurements(store.root, sweep=sweep)
    assert load_measurements(store.root, sweep=B).collect().height == N
    store.publish(A)
    assert load_measurements(store.root).collect().height == 2 * N


def test_deleted_exclusions_are_missed_until_both_files_are_gone(store) -> None:
    exclude(store.root, A, None, "a person walked past")
    (store.root / FILE).unlink()
    with pytest.raises(AnalysisError, match=r"deleted.* 1 exclusion"):
        read_exclusions(store.root)
    (store.root / COPY).unlink()
    assert read_exclusions(store.root).entries == ()


def merged(store: ResultStore) -> ResultStore:
    """A new workspace with what can be copied of this one."""
    new = ResultStore(store.root / "new")
    for one in plan_merge(new, store):
        if one.step is Step.COPY:
            copy_sweep(new, store, one.sweep_id)
    return new


@pytest.mark.slow
def test_rows_of_the_journal_only_are_merged_and_published(store, new_row) -> None:
    with store.open_journal(B) as journal:
        journal.append(new_row(sweep_id=B, repeat=N))
    assert load_measurements(merged(store).root).collect().height == 2 * N + 1


def test_a_sweep_with_a_missing_part_is_merged_after_its_repair(store) -> None:
    parts_of(store)[0].unlink()
    new = ResultStore(store.root / "new")
    refused = plan_merge(new, store)[0]
    assert (refused.step, "repair=true" in str(refused.reason)) == (Step.REFUSE, True)
    assert repair_sweep(store, A)
    assert plan_merge(new, store)[0].step is Step.COPY


def test_a_sweep_with_a_damaged_record_is_not_merged(store) -> None:
    store.record_path(A).write_text("{half")
    with pytest.raises(StoreError, match="is damaged"):
        merged(store)
    assert ResultStore(store.root / "new").sweep_ids() == []


@pytest.mark.slow
def test_a_journal_made_again_from_the_parts_is_the_same_sweep(store, new_row) -> None:
    with store.open_journal(A) as journal:
        journal.append(new_row(sweep_id=A, repeat=N, accuracy_top1=70))
    store.publish(A)
    new = merged(store)
    journals_of(store)[0].write_bytes(b"{half\n")
    assert repair_sweep(store, A)
    assert [one.step for one in plan_merge(new, store)] == [Step.SKIP, Step.SKIP]
