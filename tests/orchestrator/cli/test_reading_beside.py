"""Real commands that read in one process, and a measurement that asks for the host in another."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest
from fleet_rows import NETS, PLACES, write_results
from serving import serving
from waiting import wait_until

from fleetrank.foundation.lease import give_up_at_once, host_lease
from fleetrank.foundation.reading_beside import ReadingWatch

pytestmark = pytest.mark.thorough

_COMMAND = "from fleetrank.orchestrator.cli.main import main; main()"
_LIMIT_S = 300.0
_LOWEST = 19


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("read")
    (root / "cluster.yaml").write_text("cluster_name: test\n")
    nets = [replace(net, name=f"{net.name}-{at}") for net in NETS for at in range(3)]
    write_results(root / "results", nets=nets, places=PLACES, repeats=2, n_samples=3)
    return root


@pytest.fixture(autouse=True)
def own_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def is_read() -> bool:
    return ReadingWatch().has_seen()


def measure_beside() -> None:
    """Takes the host at once while somebody reads, and sees the reading pause."""
    wait_until(is_read, "the start of the reading", _LIMIT_S)
    with host_lease("sweep s-1, which measures on this host", give_up=give_up_at_once) as is_held:
        assert is_held, "the measurement waits for the reading"
        assert ReadingWatch().has_seen(), "its row says nothing of the reading"
        wait_until(lambda: not is_read(), "the pause between two steps", _LIMIT_S)


@contextmanager
def command(*words: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-P", "-c", _COMMAND, *words]
    with subprocess.Popen(
        argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as one:
        yield one
        one.kill()


@pytest.mark.parametrize("words", ["build --tables OUT", "build --out OUT"])
def test_a_report_lets_a_measurement_begin_at_once_and_pauses(
    workspace: Path, tmp_path: Path, words: str
) -> None:
    out = tmp_path / "out"
    argv = [str(out) if word == "OUT" else word for word in words.split()]
    with command("report", *argv, "--workspace", str(workspace)) as process:
        measure_beside()
        assert process.poll() is None
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == _LOWEST
        _, said = process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 0, said
    assert out.exists()


def test_the_report_server_lets_a_measurement_begin_at_once_and_pauses(workspace: Path) -> None:
    pages: list[httpx.Response] = []
    with serving(workspace) as served, httpx.Client(base_url=served.base) as client:
        asked = threading.Thread(
            target=lambda: pages.append(client.get("/report", timeout=_LIMIT_S))
        )
        asked.start()
        measure_beside()
        every = [served.process, *psutil.Process(served.process.pid).children(recursive=True)]
        assert {os.getpriority(os.PRIO_PROCESS, one.pid) for one in every} == {_LOWEST}
        asked.join(_LIMIT_S)
    assert [page.status_code for page in pages] == [200]
