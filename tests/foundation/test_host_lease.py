"""Two real processes on one host, and a folder that somebody else laid."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleetrank.foundation.lease import (
    HostBusyError,
    LeaseError,
    give_up_at_once,
    host_lease,
    runtime_folder,
)

pytestmark = pytest.mark.slow

_LIMIT_S = 60.0
HOLD = """
import sys, time
from fleetrank.foundation.lease import host_lease
with host_lease("sweep s-1", on_wait=lambda text: print(text, flush=True)) as is_held:
    print("held", is_held, flush=True)
    time.sleep(float(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@contextmanager
def other_process(seconds: float) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """The next line; empty if the process ends, or is killed because it writes none for long."""
    bound = threading.Timer(_LIMIT_S, process.kill)
    bound.start()
    try:
        return process.stdout.readline().strip()
    finally:
        bound.cancel()


def test_one_waits_for_another_process_and_is_told_for_what() -> None:
    told: list[str] = []
    with other_process(3.0) as other:
        assert line(other) == "held True"
        with host_lease("report", on_wait=told.append) as is_held:
            assert is_held
            assert other.wait(timeout=_LIMIT_S) == 0
    assert len(told) == 1
    assert told[0].startswith(f"waiting for sweep s-1 (process {other.pid}, since 20")
    assert told[0].endswith(", at most 4 h 00 min")


def test_a_wait_ends_at_its_limit_with_who_is_in_the_way() -> None:
    name = f"used by sweep s-1 .process {os.getpid()}, since"
    with (
        host_lease("sweep s-1"),
        pytest.raises(HostBusyError, match=name) as found,
        host_lease("again", limit_s=0.2),
    ):
        pytest.fail("two hold it")
    assert "end that process" in found.value.remedy


def test_a_holder_that_dies_lets_go() -> None:
    with other_process(60.0) as other:
        line(other)
        with host_lease("report", give_up=give_up_at_once) as is_held:
            assert not is_held
        other.send_signal(signal.SIGKILL)
        with host_lease("report") as is_held:
            assert is_held


def test_a_wait_ends_when_asked_and_on_ctrl_c() -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with host_lease("here"):
        with host_lease("again", give_up=stop.is_set) as is_held:
            assert not is_held
        with other_process(0.0) as other:
            assert line(other).startswith("waiting for here")
            other.send_signal(signal.SIGINT)
            _out, error = other.communicate(timeout=_LIMIT_S)
            assert "KeyboardInterrupt" in error


def test_who_lets_go_and_asks_again_lets_the_other_go_first() -> None:
    with host_lease("first"):
        other = subprocess.Popen(
            [sys.executable, "-c", HOLD, "0.5"], stdout=subprocess.PIPE, text=True
        )
        assert line(other).startswith("waiting for first")
    with host_lease("first again"):
        assert other.poll() is not None or line(other) == "held True"
    out, _ = other.communicate(timeout=_LIMIT_S)
    assert other.returncode == 0, out


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_a_folder_that_others_may_have_laid_is_refused(own_folder: Path, kind: str) -> None:
    place = own_folder / "fleetrank"
    if kind == "link":
        (own_folder / "elsewhere").mkdir()
        place.symlink_to(own_folder / "elsewhere")
    elif kind == "file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o777)
    with pytest.raises(LeaseError, match="cannot be kept"), host_lease("report"):
        pass


def test_without_a_runtime_folder_there_is_one_of_our_own(monkeypatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    was_there = set(Path("/tmp").iterdir())
    folder = runtime_folder()
    assert folder == Path(f"/tmp/fleetrank-{os.getuid()}")
    assert folder.stat().st_mode & 0o777 == 0o700
    if folder not in was_there:
        folder.rmdir()


def test_a_link_in_place_of_the_lease_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "fleetrank").mkdir(mode=0o700)
    (tmp_path / "fleetrank" / "host.lease").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"), host_lease("report"):
        pass
    assert not (tmp_path / "other").exists()
