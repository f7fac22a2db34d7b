"""Which sweeps are here: a sweep that lost one of its files stays known, by its fault."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from daily import daily
from two_sweeps import GOES, KEPT, make_workspace
from wording import has

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.stored.exclusions import FILE
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.part_list import list_path, read_list, sweeps_here
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.foundation.checksums import with_checksum
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.housekeeping import plan_deletion, plan_merge
from fleetrank.orchestrator.store import parts
from fleetrank.orchestrator.store.health import examine, repair_sweep, stray_faults
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import exclude


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(make_workspace(tmp_path / "w", KEPT, GOES) / "results")


def test_a_sweep_without_its_record_is_known_to_all_who_look_after_files(
    store: ResultStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.record_path(GOES).unlink()
    assert sweeps_here(store.root) == sorted((KEPT, GOES))
    assert store.sweep_ids() == [KEPT, GOES]
    name = store.record_path(GOES).name
    assert any(name in fault.text for fault in examine(store, GOES))
    assert [one.sweep_id for one in plan_deletion(store, [GOES])] == [GOES]
    words = ["results", "verify", "--workspace", str(store.root.parent)]
    assert run(words) == 1
    assert GOES in capsys.readouterr().out


@pytest.mark.parametrize("lost", ["journal", "list", "parts"])
def test_a_sweep_is_here_while_any_of_its_files_is(store: ResultStore, lost: str) -> None:
    if lost == "journal":
        store.open_journal(GOES).path.unlink()
    elif lost == "list":
        list_path(store.root, GOES).unlink()
    else:
        for path in store.parts_folder(GOES).iterdir():
            path.unlink()
    assert GOES in sweeps_here(store.root)
    assert examine(store, GOES)


def test_a_stray_list_is_a_fault_of_its_own_name(store: ResultStore) -> None:
    stray = list_path(store.root, f"{GOES}-copy")
    stray.write_bytes(list_path(store.root, GOES).read_bytes())
    assert f"{GOES}-copy" in store.sweep_ids()
    assert any("is not the list" in fault.text for fault in examine(store, f"{GOES}-copy"))


def test_copies_of_a_sweep_under_other_names_are_put_aside_or_named(store: ResultStore) -> None:
    copy = f"{GOES}-copy"
    shutil.copytree(store.parts_folder(GOES), store.parts_folder(copy))
    shutil.copy(store.record_path(GOES), store.root / "sweeps" / f"{GOES} (copy).json")
    assert any("is missing" in fault.text for fault in examine(store, copy))
    (said,) = repair_sweep(store, copy)
    assert has(said, "rows of other sweeps")
    assert copy not in store.sweep_ids()
    assert len(load_measurements(store.root).collect()) == 8
    (stray,) = stray_faults(store)
    assert has(stray.text, f"{GOES} (copy).json", "no sweep")
    shutil.copytree(store.parts_folder(GOES), store.parts_folder(copy), dirs_exist_ok=True)
    list_path(store.root, GOES).unlink()
    store.open_journal(GOES).path.unlink()
    for path in store.parts_folder(GOES).iterdir():
        path.unlink()
    assert repair_sweep(store, copy) == [], "nobody else has these rows"


@pytest.mark.parametrize("change", [{"end": -5}, {"start": 7}, {"n_bad": -1}, {"n_lines": -1}])
def test_a_list_whose_numbers_cannot_be_is_refused(
    store: ResultStore, change: dict[str, int]
) -> None:
    path = list_path(store.root, GOES)
    content = json.loads(path.read_text())
    content["stretches"][0] |= change
    content.pop("checksum")
    path.write_text(json.dumps(with_checksum(content)))
    with pytest.raises(DamagedPartError):
        read_list(store.root, GOES)
    assert examine(store, GOES)


def test_a_kill_between_the_first_part_and_its_list_stops_no_reader(
    tmp_path: Path, store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the state before the sweep; the next publication makes it whole."""
    list_path(store.root, GOES).unlink()
    for path in store.parts_folder(GOES).iterdir():
        path.unlink()
    real = parts.replace_file

    class KilledError(Exception):
        pass

    def part_and_no_more(path: Path, content: bytes) -> None:
        real(path, content)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(parts, "replace_file", part_and_no_more)
        with pytest.raises(KilledError):
            store.publish(GOES)
    assert any(store.parts_folder(GOES).glob("*.parquet"))
    assert set(load_measurements(store.root).collect()["sweep_id"]) == {KEPT}
    store.publish(GOES)
    assert set(load_measurements(store.root).collect()["sweep_id"]) == {KEPT, GOES}


@pytest.mark.slow
@pytest.mark.parametrize("kind", daily(["pipe", "folder", "device"], "pipe"))
@pytest.mark.parametrize(
    "place",
    [f"journal/{GOES}.jsonl", *(f"sweeps/{GOES}.{end}" for end in ("parts", "json", "lease")),
     f"sweeps/{GOES}.pending", f"sweeps/{GOES}.tags",
     f"measurements/sweep_id={GOES}/part-000000000000.parquet"],
)  # fmt: skip
def test_what_is_no_file_is_named_and_nobody_waits_for_it(
    store: ResultStore, place: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, codes = store.root / place, []
    path.unlink(missing_ok=True)
    make = {"pipe": lambda: os.mkfifo(path), "folder": path.mkdir}
    make.get(kind, lambda: path.symlink_to("/dev/zero"))()
    for words in (["verify"], ["list"], ["verify", "--repair"], ["delete", GOES]):
        codes.append(run(["results", *words, "--workspace", str(store.root.parent)]))
        assert "bug in" not in (said := capsys.readouterr()).err
        assert codes[-1] == 0 or path.name in said.out + said.err or GOES in said.err
    assert codes[0] != 0 or path.suffix in {".lease", ".tags"}
    if codes[0] and path.suffix not in {".json", ".pending"}:
        assert len(load_measurements(store.root).collect()) == 8, "a repair has made it again"


def test_what_killed_writers_left_is_removed_by_a_repair(store: ResultStore) -> None:
    places = [store.record_path(GOES), store.open_journal(KEPT).path, store.root / FILE]
    places += [store.raw_folder(GOES) / "a", store.parts_folder(GOES) / "b"]
    left = [path.with_name(f".{path.name}.1-0a1b2c3d.tmp") for path in places]
    for path in left:
        path.touch()
    assert run(["results", "verify", "--repair", "--workspace", str(store.root.parent)]) == 0
    exclude(store.root, KEPT, "vit*", "another reason")
    assert [path for path in left if path.exists()] == []


@pytest.mark.parametrize(
    "content",
    [{}, {"tags": []}, {"sweep_id": GOES, "stretches": []}, {"sweep_id": [GOES]},
     {"sweep_id": KEPT}, {"sweep_id": GOES, "n_ok": "4"}, {"sweep_id": GOES, "record_version": -1}],
)  # fmt: skip
def test_no_other_object_with_a_checksum_is_a_record(store: ResultStore, content) -> None:
    store.record_path(GOES).write_text(json.dumps(with_checksum(content)))
    with pytest.raises(StoreError, match="is damaged"):
        store.sweep_record(GOES)
    assert examine(store, GOES)


def test_a_merge_says_that_a_sweep_of_the_other_side_has_no_record(
    store: ResultStore, tmp_path: Path
) -> None:
    here = ResultStore(make_workspace(tmp_path / "here", KEPT) / "results")
    store.record_path(GOES).unlink()
    with pytest.raises(FleetError, match=GOES):
        plan_merge(here, store)


@pytest.mark.parametrize("lost", ["all three", "an older copy"])
def test_fewer_rows_than_the_record_states_are_a_fault(store: ResultStore, lost: str) -> None:
    n_ok = len(list(store.open_journal(GOES).rows()))
    store.update_record(GOES, {"n_ok": n_ok, "n_failed": 0, "n_left": 0})
    assert examine(store, GOES) == []
    journal = store.open_journal(GOES).path
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.unlink()
    list_path(store.root, GOES).unlink()
    for path in store.parts_folder(GOES).iterdir():
        path.unlink()
    if lost == "an older copy":
        journal.write_bytes(b"".join(lines[: n_ok // 2]))
        store.publish(GOES)
    (fault,) = examine(store, GOES)
    assert str(n_ok) in fault.text


def test_fewer_rows_of_an_import_are_a_fault(store: ResultStore) -> None:
    n_rows = len(list(store.open_journal(KEPT).rows()))
    store.update_record(KEPT, {"origin": "imported", "n_rows": n_rows + 1})
    (fault,) = examine(store, KEPT)
    assert str(n_rows + 1) in fault.text


_DROPPED = ["report", "show", "trust", "--part", "dropped"]


@pytest.mark.parametrize(
    "name",
    [
        "sweeps/{}.parts", "sweeps/{}.json", "journal/{}.jsonl",
        "measurements/sweep_id={}/part-000000000000.parquet",
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_readers_go_on_beside_a_folder_or_pipe_of_no_sweep(
    store: ResultStore,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    name: str,
    make: Callable[[Path], None],
) -> None:
    path = store.root / name.format("lost-20260101T000000-abcd")
    path.parent.mkdir(exist_ok=True)
    make(path)
    workspace = ["--workspace", str(store.root.parent)]
    for words in (["results", "list"], _DROPPED):
        assert run([*words, *workspace]) == 0
    assert has(caplog.text, str(path), "is not a file", "verify")
    assert run(["results", "verify", *workspace]) == 1
    assert str(path) in capsys.readouterr().err
    assert run(["results", "verify", "--repair", *workspace]) == 0
    assert not path.exists()
    assert run(["results", "verify", *workspace]) == 0
    assert len(load_measurements(store.root, origins=None).collect()) == 8


def test_a_folder_in_place_of_a_lease_stops_no_reader(
    store: ResultStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.lease_path(GOES).mkdir()
    assert run(["results", "list", "--workspace", str(store.root.parent)]) == 0
    assert has(caplog.text, store.lease_path(GOES).name, "not known")


def test_a_damaged_record_hides_no_other_sweep_from_the_list(
    store: ResultStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.record_path(GOES).write_text("{")
    assert run(["results", "list", "--json", "--workspace", str(store.root.parent)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["sweep_id"], row["state"]) for row in rows] == [
        (KEPT, "finished"), (GOES, "unknown"),
    ]  # fmt: skip


def test_a_file_system_without_locks_can_be_read(
    store: ResultStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for sweep_id in (KEPT, GOES):
        store.lease_path(sweep_id).touch()
    take = fcntl.flock

    def refuse(file: int | IO[str], operation: int) -> None:
        number = file if isinstance(file, int) else file.fileno()
        if Path(f"/proc/self/fd/{number}").readlink().is_relative_to(store.root):
            raise OSError(errno.ENOLCK, "No locks available")
        take(number, operation)

    monkeypatch.setattr(fcntl, "flock", refuse)
    workspace = ["--workspace", str(store.root.parent)]
    for words in (["results", "list"], ["sweep", "status"], ["results", "verify"], _DROPPED):
        assert run([*words, *workspace]) == 0, words
    assert caplog.text.count("no file locks") == 1
    assert run(["results", "exclude", GOES, "--reason", "x", *workspace]) == 1
    assert "file system with locks" in capsys.readouterr().err


def test_what_a_process_left_that_was_killed_at_the_first_write_goes_with_the_next(
    store: ResultStore,
) -> None:
    left, living = ("left-20260101T000000-abcd", "lives-20260101T000000-abcd")
    files = [store.root / "sweeps" / f".{one}.json.1-00.tmp" for one in (left, living)]
    for path in files:
        path.write_text("{")
    store.lease_path(left).touch()
    with store.lease(living):
        files[1].write_text("{")  # who takes a lease removes what was left before
        assert store.remove_unfinished() == [left]
        assert [path.exists() for path in files] == [False, True]
    assert not store.lease_path(left).exists()
    assert store.sweep_ids() == [KEPT, GOES]
    store.create_sweep(SweepRecord(sweep_id="next-20260101T000000-abcd"))
    assert not any(path.exists() for path in files)
