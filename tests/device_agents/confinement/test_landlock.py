"""Rulesets of every version this kernel knows, each in a process that confines itself."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from daily import daily

from fleetrank.device_agents.confinement import landlock

ABI = landlock.abi()

CONFINED = """
import json, os, socket, sys
from pathlib import Path
from fleetrank.device_agents.confinement import landlock
from fleetrank.device_agents.confinement.grants import Grants
from fleetrank.device_agents.confinement.seccomp import give_up_privileges

version, folder, port = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
grants = Grants(installation=("/usr", "/lib"), readable=(str(folder / "readable"),),
                writable=(str(folder / "writable"),), scratch=str(folder / "scratch"),
                starts_programs=False)
give_up_privileges()
landlock.restrict(grants, version)

def may(action):
    try:
        action()
    except OSError:
        return False
    return True

print(json.dumps({
    "read": may((folder / "readable").read_text),
    "write read-only": may(lambda: (folder / "readable").write_text("x")),
    "write": may(lambda: (folder / "writable").write_text("x")),
    "make": may((folder / "made").touch),
    "make in scratch": may((folder / "scratch" / "made").touch),
    "move in scratch": may(lambda: (folder / "scratch" / "made").rename(folder / "scratch/moved")),
    "read elsewhere": may((folder / "secret").read_text),
    "truncate": may(lambda: os.truncate(folder / "secret", 0)),
    "connect": may(lambda: socket.socket().connect(("127.0.0.1", port))),
    "execute": may(lambda: os.posix_spawn("/usr/bin/true", ["true"], {})),
}))
"""


@pytest.mark.skipif(ABI is None, reason="this kernel has no Landlock")
@pytest.mark.parametrize("version", daily(range(1, (ABI or 1) + 1), 1, ABI or 1))
def test_an_older_kernel_s_ruleset_holds_what_it_knows(version: int, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    for name in ("readable", "writable", "secret"):
        (tmp_path / name).write_text(name)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-P", "-c", CONFINED, str(version), str(tmp_path), str(port)],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    done_by_name = json.loads(done.stdout)
    allowed = {"read", "write", "make in scratch", "move in scratch"}
    later = {"truncate": 3, "connect": landlock.NETWORK_ABI}
    allowed |= {name for name, since in later.items() if version < since}
    assert {name for name, is_done in done_by_name.items() if is_done} == allowed


NAMED = """
import os, sys, threading
from pathlib import Path
from fleetrank.device_agents.confinement import landlock
from fleetrank.device_agents.confinement.grants import Grants
from fleetrank.device_agents.confinement.seccomp import give_up_privileges

give_up_privileges()
task = os.path.realpath("/proc/self/task")
grants = Grants(installation=("/usr",), readable=("/proc",), writable=(task,), scratch=sys.argv[1],
                starts_programs=False)
landlock.restrict(grants, landlock.abi())

def name_myself():
    path = Path("/proc/self/task") / str(threading.get_native_id()) / "comm"
    path.write_text("driver")
    print(path.read_text(), end="")

thread = threading.Thread(target=name_myself)
thread.start()
thread.join()
try:
    Path("/proc/self/comm").write_text("other")
except PermissionError:
    print("refused")
"""


@pytest.mark.slow
@pytest.mark.skipif(ABI is None, reason="this kernel has no Landlock")
def test_a_driver_names_its_threads_and_writes_nothing_else_in_proc(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", NAMED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["driver", "refused"]


def test_a_system_without_landlock_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert landlock.abi() is None
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(landlock, "_CREATE_RULESET", 100_000)  # a call no kernel has
    assert landlock.abi() is None
