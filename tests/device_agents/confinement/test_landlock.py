"""Rulesets of every version this kernel knows, each in a process that confines itself."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fleetrank.device_agents.confinement import landlock

ABI = landlock.abi()

CONFINED = """
import json, os, socket, sys
from pathlib import Path
from fleetrank.device_agents.confinement import landlock
from fleetrank.device_agents.confinement.grants import Grants

version, folder, port = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
grants = Grants(installation=("/usr", "/lib"), readable=(str(folder / "readable"),),
                writable=(str(folder / "writable"),), scratch=str(folder / "scratch"),
                starts_programs=False)
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
@pytest.mark.parametrize("version", range(1, (ABI or 1) + 1))
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


def test_a_system_without_landlock_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert landlock.abi() is None
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(landlock, "_CREATE_RULESET", 100_000)  # a call no kernel has
    assert landlock.abi() is None
