"""Code of a file that calls the kernel itself, in a real worker of each runtime."""

import json
import os
import socket
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confined_worker import MARK
from daily import daily
from native_worker import DAEMON

from fleetrank.device_agents.confinement import seccomp
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.linux.scratch import worker_environment
from fleetrank.foundation.codec import from_json
from fleetrank.foundation.supervised_child import run_child
from fleetrank.foundation.vocabulary import Runtime, Status
from tests.device_agents.conftest import MakeTask

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not seccomp.is_available(), reason="no filter of system calls here"),
]
NATIVE = str(Path(__file__).parents[2] / "makers" / "native_worker.py")


@dataclass(frozen=True)
class Attack:
    """What code of a file did: the names of what succeeded, its daemon, and the row."""

    done: set[str]
    tried: set[str]
    daemon: int | None
    seen: Measurement


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "victim").touch(mode=0o600)
    return tmp_path / "target"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


def attack(task: MeasureTask, walls: str, folder: Path, listener: socket.socket) -> Attack:
    port = str(listener.getsockname()[1])
    command = (sys.executable, NATIVE, walls, str(folder), port)
    with worker_environment(task) as environment:
        end = run_child(command, encode_request(task), timeout_s=120, environment=environment)
    lines = end.stderr.splitlines()
    assert any(line.startswith(MARK) for line in lines), end.stderr
    found = json.loads(next(line for line in lines if line.startswith(MARK)).removeprefix(MARK))
    daemons = [int(line.removeprefix(DAEMON)) for line in lines if line.startswith(DAEMON)]
    return Attack(
        done={name for name, is_done in found.items() if is_done},
        tried=set(found),
        daemon=daemons[0] if daemons else None,
        seen=from_json(Measurement, end.stdout),
    )


def test_the_attempts_are_real_ones_and_no_daemon_outlives_its_worker(
    task_of: MakeTask, folder: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, the tests below would pass on code that harms nothing."""
    monkeypatch.setenv("TMPDIR", str(folder))  # a trusted task has no folder of its own
    found = attack(task_of(Runtime.ONNX, is_trusted=True), "", folder, listener)
    assert found.done == found.tried
    assert stat.S_IMODE((folder / "victim").stat().st_mode) == 0o640
    assert found.daemon is not None
    assert not Path(f"/proc/{found.daemon}").exists()


ALL_WALLS = "landlock+seccomp+audit"
CASES = [(runtime, walls) for runtime in Runtime for walls in ("seccomp", ALL_WALLS)]


# ExecuTorch behind all walls: `test_walls`.
@pytest.mark.parametrize(("runtime", "walls"), daily(CASES, (Runtime.ONNX, "seccomp")))
def test_native_code_is_refused_all_of_it(
    runtime: Runtime, walls: str, task_of: MakeTask, folder: Path, listener: socket.socket
) -> None:
    before = (folder / "victim").stat()
    found = attack(task_of(runtime), walls, folder, listener)
    assert found.done == set()
    assert len(found.tried) == (26 if os.geteuid() == 0 else 18)
    assert (folder / "victim").stat() == before
    assert os.listxattr(folder / "victim") == []
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert found.seen.status is Status.OK, found.seen.failure
