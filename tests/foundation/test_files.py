import errno
import os
from pathlib import Path

import pytest
from full_disk import no_room_beyond

from fleetrank.foundation import files
from fleetrank.foundation.files import (
    NoRoomError,
    StorageError,
    is_about_storage,
    is_no_room,
    make_folder,
    replace_file,
    replace_file_with,
    storage_error,
)

NO_ROOM = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some", errno.EFBIG: "ulimit -f"}
NO_RIGHT = dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "get the permission")
LOST = dict.fromkeys((errno.ESTALE, errno.EIO, errno.ENODEV), "mounted from")


@pytest.mark.parametrize(("number", "remedy"), (NO_ROOM | NO_RIGHT | LOST).items())
def test_an_error_of_storage_says_file_reason_and_remedy(number: int, remedy: str) -> None:
    error = OSError(number, os.strerror(number))
    assert is_about_storage(error)
    assert is_no_room(error) == (number in NO_ROOM)
    found = storage_error(Path("/w/x"), error)
    assert isinstance(found, NoRoomError) == (number in NO_ROOM)
    assert found.message.startswith("/w/x cannot be written: ")
    assert remedy in found.remedy


def test_other_errors_are_not_about_storage() -> None:
    assert not is_about_storage(OSError(errno.ECONNRESET, "reset"))
    assert not is_about_storage(ValueError("full"))


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    replace_file(tmp_path / "link", b"new", is_synced=True)
    assert (tmp_path / "outside").read_text() == "mine"
    assert (tmp_path / "link").read_bytes() == b"new"
    assert not (tmp_path / "link").is_symlink()


def test_what_cannot_be_finished_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with no_room_beyond(10), pytest.raises(NoRoomError, match="file size limit"):
        replace_file(path, b"x" * 100)
    with pytest.raises(ZeroDivisionError):
        replace_file_with(path, lambda _file: 1 // 0)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("f", "old")]


def test_a_folder_that_was_moved_away_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        replace_file(tmp_path / "gone" / "f", b"")
    assert not (tmp_path / "gone").exists()


def test_a_folder_below_a_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(StorageError) as caught:
        make_folder(tmp_path / "f" / "deep")
    assert "its folder exists" in caught.value.remedy


def test_content_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    path = tmp_path / "f"
    monkeypatch.setattr(files, "sync_file", lambda aside: synced.append(("file", path.exists())))
    monkeypatch.setattr(files, "sync_folder", lambda _: synced.append(("folder", path.exists())))
    replace_file(path, b"x")
    assert synced == []
    path.unlink()
    replace_file(path, b"x", is_synced=True)
    assert synced == [("file", False), ("folder", True)]


def test_a_moved_file_replaces_the_old_one(tmp_path: Path) -> None:
    source, target = tmp_path / "new", tmp_path / "old"
    source.write_text("new")
    target.write_text("old")
    files.move_file(source, target)
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_moves_to_another_file_system(tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one file system only")
    source = shm / f"fleetrank-test-{os.getpid()}"
    source.write_text("far")
    files.move_file(source, tmp_path / "near")
    assert (tmp_path / "near").read_text() == "far"
    assert not source.exists()


def test_a_file_that_cannot_be_moved_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with pytest.raises(StorageError, match="old cannot be written"):
        files.move_file(tmp_path / "missing", tmp_path / "old")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_pipe_is_refused_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StorageError, match="not a regular file"):
        replace_file(pipe, b"x")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_among_the_devices_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_DEVICES", tmp_path)
    link = tmp_path / "stdout"
    link.symlink_to(tmp_path / "target")
    with pytest.raises(StorageError, match="not a regular file"):
        replace_file(link, b"x")
    assert link.is_symlink()


def test_a_synced_replacement_syncs_the_file_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
    )
    replace_file(tmp_path / "a", b"1", is_synced=True)
    assert len(synced) == 2
    assert synced[0].startswith(f"{tmp_path}/")
    assert synced[1] == str(tmp_path)
