import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fleetrank.foundation.temporary import make_temporary_folder, remove_tree, temporary_folder

KILLED = """
import os, signal
from fleetrank.foundation.temporary import temporary_folder
with temporary_folder("ray") as folder:
    (folder / "r").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_private_and_ends_with_its_block(temp: Path) -> None:
    with temporary_folder("ray") as folder:
        assert list(temp.iterdir()) == [folder]
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").touch()
    assert list(temp.iterdir()) == []


def test_folders_in_use_and_of_other_purposes_stay(temp: Path) -> None:
    other = temp / "fleetrank-eval-abc"
    other.mkdir()
    with temporary_folder("ray") as first, temporary_folder("ray") as second:
        assert {first, second, other} == set(temp.iterdir())


def test_what_cannot_be_removed_is_passed_over(temp: Path) -> None:
    (temp / "fleetrank-ray-file").touch()
    (temp / "target").mkdir()
    (temp / "fleetrank-ray-link").symlink_to(temp / "target")
    with temporary_folder("ray"):
        assert (temp / "fleetrank-ray-link").is_dir()


@pytest.mark.slow
def test_the_folder_of_a_killed_process_goes_with_the_next_one(
    temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(temp))
    killed = subprocess.run([sys.executable, "-P", "-c", KILLED], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (left,) = temp.iterdir()
    made = make_temporary_folder("ray", temp)
    os.close(made.lock)
    assert not left.exists()
    assert list(temp.iterdir()) == [made.path]


@pytest.mark.slow
def test_a_tree_that_a_hostile_file_left_is_removed_and_nothing_outside_is(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("x")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    (tree / "dangling").symlink_to(tmp_path / "nothing")
    (tree / ".0").mkdir()  # where the remover would put something
    os.mkfifo(tree / "pipe")
    (tree / "closed" / "inner").mkdir(parents=True)
    (tree / "closed" / "inner" / "file").touch()
    (tree / "closed" / "inner").chmod(0)
    (tree / "closed").chmod(0)
    deepen(tree, 3000)
    tree.chmod(0)
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").read_text() == "x"
    assert outside.stat().st_mode & 0o777 == 0o755


def deepen(folder: Path, levels: int) -> None:
    """Deeper than a path can be long, and than Python recurses."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
