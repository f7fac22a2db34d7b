import json
import logging
import os
from pathlib import Path

import pytest

from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.orchestrator.errors import NewerSchemaError, StoreError
from fleetrank.orchestrator.store.journal import Journal, JournalProblem


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal" / "quick-20260102T030405-0a1b.jsonl"


def _problems(path: Path) -> list[JournalProblem]:
    return [item for item in Journal(path).scan() if isinstance(item, JournalProblem)]


def test_rows_come_back_as_they_were_appended(path, new_row) -> None:
    rows = [new_row(repeat=number) for number in range(3)]
    with Journal(path) as journal:
        for row in rows:
            journal.append(row)
    assert list(Journal(path).rows()) == rows


def test_an_appended_row_is_on_file_before_it_is_synced(path, new_row) -> None:
    journal = Journal(path)
    journal.append(new_row())
    assert list(Journal(path).rows()) == [new_row()]
    journal.close()


def test_a_row_with_an_integer_beyond_64_bits_is_refused(path, new_row) -> None:
    with Journal(path) as journal:
        with pytest.raises(ValueError, match=r"peak_memory_bytes.*71 bits"):
            journal.append(new_row(peak_memory_bytes=2**70))
        journal.append(new_row(error_message="größer als 64 Bit"))
        (row,) = journal.rows()
    assert row["error_message"] == "größer als 64 Bit"


def test_a_journal_never_written_has_no_rows(path) -> None:
    assert list(Journal(path).rows()) == []
    Journal(path).close()
    assert not path.exists()


def test_a_torn_last_line_is_reported_kept_and_written_past(path, new_row, caplog) -> None:
    with Journal(path) as journal:
        journal.append(new_row(repeat=0))
        journal.append(new_row(repeat=1))
    whole = path.read_bytes()
    torn = whole[:-40]
    path.write_bytes(torn)
    assert [row["repeat"] for row in Journal(path).rows()] == [0]
    (problem,) = _problems(path)
    assert problem.line == 2
    assert "half a row" in problem.reason
    with Journal(path) as journal:
        journal.append(new_row(repeat=1))
    with caplog.at_level(logging.WARNING):
        assert [row["repeat"] for row in Journal(path).rows()] == [0, 1]
    assert "line 2" in caplog.text
    assert path.read_bytes().startswith(torn + b"\n")


@pytest.mark.parametrize("n_cut", range(0, 60, 7))
def test_a_row_torn_anywhere_never_comes_back_changed(path, new_row, n_cut) -> None:
    with Journal(path) as journal:
        journal.append(new_row())
    path.write_bytes(path.read_bytes()[: -n_cut or None])
    assert list(Journal(path).rows()) in ([new_row()], [])


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage\n",
        b"\xff\xfe\x00\n",
        b"[1, 2]\n",
        b'{"cell_key": null}\n',
        b'{"sweep_id":"s","cell_key":"c","repeat":"x","attempt":0}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_foreign_line_is_reported_with_its_number_and_kept(path, new_row, garbage) -> None:
    with Journal(path) as journal:
        journal.append(new_row(repeat=0))
    with path.open("ab") as file:
        file.write(garbage)
    with Journal(path) as journal:
        journal.append(new_row(repeat=1))
    assert [row["repeat"] for row in Journal(path).rows()] == [0, 1]
    assert [problem.line for problem in _problems(path)] == [2]
    assert garbage in path.read_bytes()


def test_a_row_of_a_newer_table_is_refused(path, new_row) -> None:
    with Journal(path) as journal:
        journal.append(new_row(schema_version=SCHEMA_VERSION + 1))
    with pytest.raises(NewerSchemaError, match="line 1"):
        list(Journal(path).rows())


def test_a_row_that_meets_a_full_disk_goes_out_when_there_is_room(
    path, new_row, monkeypatch
) -> None:
    journal = Journal(path)
    journal.append(new_row(repeat=0))
    real_write = os.write

    def half_then_full(descriptor: int, data: bytes) -> int:
        if len(data) < 200:
            raise OSError(28, "No space left on device")
        return real_write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr("fleetrank.orchestrator.store.journal.os.write", half_then_full)
    with pytest.raises(StoreError, match="disk is full") as caught:
        journal.append(new_row(repeat=1))
    assert "free some space" in caught.value.remedy
    assert [row["repeat"] for row in Journal(path).rows()] == [0]
    assert _problems(path) == []
    monkeypatch.undo()
    journal.append(new_row(repeat=2))
    journal.close()
    assert [row["repeat"] for row in Journal(path).rows()] == [0, 1, 2]


def test_a_changed_value_is_no_row(path, new_row) -> None:
    with Journal(path) as journal:
        journal.append(new_row(load_ns=8675309))
        journal.append(new_row(repeat=1))
    path.write_bytes(path.read_bytes().replace(b"8675309", b"8675319"))
    assert [row["repeat"] for row in Journal(path).rows()] == [1]
    (problem,) = _problems(path)
    assert problem.line == 1
    assert "checksum" in problem.reason


def test_a_line_is_json_that_any_tool_reads(path, new_row) -> None:
    with Journal(path) as journal:
        journal.append(new_row())
    row = json.loads(path.read_bytes())
    assert row.pop("checksum").startswith("sha256:")
    assert row.pop("table") == "measurements"
    assert row == new_row()


def test_a_line_without_a_checksum_is_no_row(path, new_row) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"table": "measurements", **new_row()}) + "\n", encoding="utf-8")
    assert list(Journal(path).rows()) == []
    (problem,) = _problems(path)
    assert "no checksum" in problem.reason


def test_a_flush_syncs_the_file_itself(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "quick.jsonl", []
    with Journal(path) as journal:
        journal.open()
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
        journal.flush()
    assert path.stat().st_ino in synced
