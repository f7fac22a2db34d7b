"""A place of a real labgrid: its coordinator and exporter, and two users who want one place."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import wait_until

from fleetrank.device_agents.errors import NotFitError
from fleetrank.device_agents.hold import LABGRID, CommandHold, LostHoldError, Reservation

pytestmark = pytest.mark.thorough


@dataclass(frozen=True)
class Labgrid:
    """A coordinator at an address, with the place `board`."""

    at: str

    def call(self, *words: str, user: str = "ann") -> int:
        """What a user types; the exit code."""
        command = [LABGRID, "-x", self.at, "-p", "board", *words]
        env = os.environ | {"LG_USERNAME": user}
        return subprocess.run(command, env=env, check=False, capture_output=True).returncode

    @property
    def hold(self) -> CommandHold:
        return CommandHold(Reservation(labgrid="board", coordinator=self.at))


@pytest.fixture
def labgrid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Labgrid]:
    beside = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([beside, os.environ["PATH"]]))
    monkeypatch.setenv("LG_USERNAME", "me")
    if shutil.which(LABGRID) is None:
        pytest.skip("labgrid is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        at = f"127.0.0.1:{free.getsockname()[1]}"
    resources = tmp_path / "resources.yaml"
    resources.write_text("rack: {NetworkService: {address: 127.0.0.1, username: root}}")
    home = tmp_path / "coordinator"
    home.mkdir()
    commands = (
        ["labgrid-coordinator", "-l", at],
        ["labgrid-exporter", "-c", at, "-n", "rack-1", str(resources)],
    )
    found, running = Labgrid(at), []
    try:
        for command in commands:
            with (home / f"{command[0]}.log").open("wb") as log:
                running.append(subprocess.Popen(command, cwd=home, stdout=log, stderr=log))
            wait_until(lambda: found.call("places") == 0, "an answer of the coordinator")
        assert found.call("create") == 0
        assert found.call("add-match", "rack-1/rack/*") == 0
        wait_until(lambda: found.call("acquire") == 0, "the resources of the place")
        yield found
    finally:
        for one in running:
            one.kill()
            one.wait()


def test_a_place_that_was_taken_away_is_lost_and_stays_with_its_new_user(labgrid: Labgrid) -> None:
    hold = labgrid.hold
    with pytest.raises(NotFitError, match="/ann"):
        hold.take()
    assert labgrid.call("release") == 0
    hold.take()
    hold.keep()
    with pytest.raises(NotFitError, match="already acquired"):
        labgrid.hold.take()  # the same user in another process
    assert labgrid.call("release", "--kick") == 0
    assert labgrid.call("acquire") == 0
    with pytest.raises(LostHoldError, match="acquired by ann"):
        hold.keep()
    hold.release()
    assert labgrid.call("env") == 0, "ann has it"
