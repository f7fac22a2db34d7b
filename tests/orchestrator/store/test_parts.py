import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_part import published_rows

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.analysis.stored.part_list import list_path, part_files
from fleetrank.foundation import files
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.store import parts
from fleetrank.orchestrator.store.journal import Journal, make_line
from fleetrank.orchestrator.store.parts import publish, read_sweeps, repeat_seconds, to_frame

pytestmark = pytest.mark.slow

SWEEP = "quick-20260102T030405-0a1b"
NewRow = Callable[..., dict[str, object]]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch, new_row: NewRow) -> None:
    """Four rows a part."""
    monkeypatch.setattr(parts, "STRETCH_BYTES", 4 * len(make_line(new_row())) - 40)


class Folder:
    """A results folder with one journal."""

    def __init__(self, root: Path, new_row: NewRow) -> None:
        self.root, self._new_row, self.n_rows = root, new_row, 0

    @property
    def journal(self) -> Journal:
        return Journal(self.root / "journal" / f"{SWEEP}.jsonl")

    def append(self, n: int, **changes: object) -> None:
        with self.journal as journal:
            for repeat in range(self.n_rows, self.n_rows + n):
                journal.append(self._new_row(repeat=repeat, **changes))
        self.n_rows += n

    def publish(self) -> int:
        return publish(self.root, self.journal)

    def repeats(self) -> list[object]:
        return [row["repeat"] for row in published_rows(self.root, SWEEP)]

    def paths(self) -> list[Path]:
        return part_files(self.root, SWEEP)


@pytest.fixture
def folder(tmp_path: Path, new_row: NewRow) -> Folder:
    return Folder(tmp_path, new_row)


def test_a_row_becomes_a_table_of_the_declared_columns(new_row) -> None:
    frame = to_frame([new_row()])
    assert dict(frame.schema) == SCHEMA
    row = frame.row(0, named=True)
    assert row["samples_ns"] == [10, 20, 30, 40]
    assert row["started_utc"].isoformat() == "2026-01-02T03:04:05.000006+00:00"
    assert row["steal_share_before"] is None


def test_a_column_that_a_row_lacks_is_null(new_row) -> None:
    row = new_row()
    del row["energy_mj"], row["finished_utc"]
    assert to_frame([row])["energy_mj"].to_list() == [None]


def test_a_value_that_does_not_fit_its_column_is_an_error(new_row) -> None:
    for wrong in ({"load_ns": "soon"}, {"started_utc": "soon"}, {"load_ns": 2**70}):
        with pytest.raises(StoreError, match="do not fit") as caught:
            to_frame([new_row(), new_row(repeat=7, **wrong)])
        assert "'repeat': 7" in caught.value.message
        assert "'repeat': 0" not in caught.value.message


def test_parts_hold_each_row_once_however_often_they_are_published(folder) -> None:
    for n_new in (0, 1, 2, 1, 1, 4, 0):
        folder.append(n_new)
        folder.publish()
        assert folder.repeats() == list(range(folder.n_rows))
    assert len(folder.paths()) == 3
    assert folder.publish() == 0


def test_a_damaged_part_is_named_and_made_again_once_it_is_gone(folder) -> None:
    folder.append(9)
    folder.publish()
    part = folder.paths()[1]
    part.write_bytes(part.read_bytes()[:-9])
    for read in (folder.publish, folder.repeats):
        with pytest.raises(StoreError, match=rf"{part.name} is damaged"):
            read()
    part.unlink()
    with pytest.raises(StoreError, match=rf"{part.name} is missing"):
        folder.repeats()
    assert folder.publish() == 1
    assert folder.repeats() == list(range(9))


def test_every_flipped_byte_and_every_cut_is_noticed(folder) -> None:
    folder.append(2)
    folder.publish()
    for path in (*folder.paths(), list_path(folder.root, SWEEP)):
        content = path.read_bytes()
        step = max(1, len(content) // 40)
        flips = [content[:n] + bytes([content[n] ^ 4]) + content[n + 1 :]
                 for n in range(0, len(content), step)]  # fmt: skip
        cuts = [content[:n] for n in range(0, len(content) - 1, step)]
        for number, changed in enumerate([*flips, *cuts]):
            path.write_bytes(changed)
            os.utime(path, (number, number))  # what was found of a file is kept while it is equal
            with pytest.raises(DamagedPartError):
                folder.paths()
        path.write_bytes(content)


def test_a_lost_list_is_noticed(folder) -> None:
    folder.append(2)
    folder.publish()
    list_path(folder.root, SWEEP).unlink()
    with pytest.raises(DamagedPartError, match="is missing"):
        folder.paths()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(st.integers(1, 6), st.sampled_from(["publish", "lose", "pack"])), max_size=9
    ),
    chance=st.randoms(use_true_random=False),
)
def test_whatever_happens_the_parts_become_the_journal_again(
    tmp_path_factory, new_row, steps, chance
) -> None:
    folder = Folder(tmp_path_factory.mktemp("parts"), new_row)
    for step in [*steps, "publish"]:
        if isinstance(step, int):
            folder.append(step)
        elif step == "pack":
            folder.journal.pack()
        else:
            if step == "lose" and (paths := folder.paths()):
                chance.choice(paths).unlink()
            folder.publish()
    assert folder.repeats() == list(range(folder.n_rows))


@pytest.mark.parametrize("n_cut", [2, 3000, 10**9])
def test_nothing_is_published_from_a_journal_that_was_cut(folder, new_row, n_cut) -> None:
    folder.append(9)
    folder.publish()
    path = folder.journal.path
    path.write_bytes(path.read_bytes()[:-n_cut])
    with folder.journal as journal:
        journal.append(new_row(repeat=8))
    with pytest.raises(StoreError, match="is not the journal"):
        folder.publish()
    assert folder.repeats() == list(range(9))


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("number", range(1, 14))
def test_a_kill_at_any_step_shows_readers_the_old_or_the_new_rows(
    folder, monkeypatch, number
) -> None:
    folder.append(2)
    folder.publish()
    folder.append(5)
    real, calls, seen = os.replace, iter(range(1, 1000)), []

    def die(*names: object) -> None:
        seen.append(folder.repeats())
        if next(calls) >= number:
            raise _Killed
        real(*names)
        seen.append(folder.repeats())

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        try:
            folder.publish()
        except _Killed:
            seen.append(folder.repeats())
    assert all(repeats == list(range(len(repeats))) for repeats in seen)
    folder.publish()
    assert folder.repeats() == list(range(7))
    assert sorted(folder.paths()) == sorted(folder.paths()[0].parent.iterdir())


def test_a_foreign_file_among_the_parts_is_left_alone(folder) -> None:
    folder.append(1)
    folder.publish()
    path = folder.paths()[0].with_name("part-old.parquet")
    path.write_bytes(b"")
    folder.publish()
    assert path.exists()
    assert folder.repeats() == [0]


def test_a_part_that_cannot_be_finished_changes_nothing(folder, monkeypatch) -> None:
    folder.append(1)
    folder.publish()
    folder.append(1)

    def fail(aside: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "sync_file", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        folder.publish()
    assert folder.repeats() == [0]
    assert folder.paths() == list(folder.paths()[0].parent.iterdir())


def test_any_reader_reads_a_part(folder) -> None:
    import duckdb

    folder.append(3)
    folder.publish()
    (path,) = folder.paths()
    assert pl.read_parquet(path)["repeat"].to_list() == [0, 1, 2]
    with duckdb.connect(":memory:") as connection:
        found = connection.execute("SELECT repeat FROM read_parquet(?)", [str(path)]).fetchall()
    assert found == [(0,), (1,), (2,)]


def test_history_is_the_mean_length_of_good_repeats(folder) -> None:
    late = "2026-01-02T03:04:11.000006+00:00"
    folder.append(1)
    folder.append(1, finished_utc=late)
    folder.append(1, status="failed", finished_utc=late)
    folder.append(1, cell_key="other", finished_utc=None)
    folder.publish()
    assert repeat_seconds(folder.root, [SWEEP]) == {"0123456789abcdef": 4.0}
    assert repeat_seconds(folder.root, ["none"]) == {}


def test_a_cell_that_took_turns_took_its_share_of_the_round(folder) -> None:
    for cell in ("a", "b", "c", "d"):
        late = "2026-01-02T03:04:11.000006+00:00"
        folder.append(1, cell_key=cell, finished_utc=late, round_id=cell if cell == "d" else "r")
    folder.publish()
    assert repeat_seconds(folder.root, [SWEEP]) == {"a": 2.0, "b": 2.0, "c": 2.0, "d": 6.0}


def test_times_of_any_iso_length_are_utc(new_row) -> None:
    texts = ["2026-01-02T03:04:05+00:00", "2026-01-02T05:04:05.5+02:00", "2026-01-02T03:04:05Z"]
    frame = to_frame([new_row(started_utc=text) for text in [*texts, "2026-01-02T03:04:05"]])
    seconds = frame["started_utc"].dt.epoch("ms").to_list()
    assert [value - seconds[0] for value in seconds] == [0, 500, 0, 0]


def test_no_sweep_is_an_empty_table(tmp_path) -> None:
    assert dict(read_sweeps(tmp_path, []).schema) == SCHEMA
