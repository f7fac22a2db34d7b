"""A cluster that cannot be joined is refused quickly and by name."""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from wording import has

from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.dispatch.local_ray import local_ray
from fleetrank.orchestrator.dispatch.ray_cluster import cluster_ray
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, UsageError


@pytest.mark.parametrize("address", ["head", "1.2.3.4", "http://a:1/x", "a:b", ":6379", ""])
def test_what_is_no_address_is_bad_usage(address: str) -> None:
    with pytest.raises(UsageError, match="not an address"), cluster_ray(address):
        pass


def test_nobody_listening_is_said_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(NothingToDoError, match="nothing answers"), cluster_ray(f"127.0.0.1:{port}"):
        pass


def test_auto_without_a_cluster_says_how_to_join_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests beside this one may have a Ray of their own.
    monkeypatch.setattr(psutil, "process_iter", lambda names: iter(()))
    with pytest.raises(NothingToDoError) as caught, cluster_ray("auto"):
        pass
    assert "ray start" in caught.value.remedy


def test_inline_and_cluster_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path / "w")]) == 0
    words = ["--workspace", str(tmp_path / "w"), "sweep", "run", "example", "--inline"]
    assert run([*words, "--cluster", "auto"]) == 2
    assert "--inline and --cluster" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.ray
def test_ray_that_gave_up_starting_is_started_once_more() -> None:
    # A process of its own: Ray forgets the processes of a start that failed.
    code = """
import psutil, ray
from ray._private.node import Node
from fleetrank.orchestrator.dispatch.local_ray import local_ray
first, bare = [], Node.validate_ip_port
def give_up(*_):
    Node.validate_ip_port = staticmethod(bare)
    first.extend(psutil.Process().children(recursive=True))
    raise Exception("The current node timed out during startup")
Node.validate_ip_port = give_up
with local_ray():
    left = [one for one in first if one.is_running()]
    print(ray.get(ray.remote(lambda: 7).remote()), len(first) > 1, len(left))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["7", "True", "0"], done.stderr


def test_a_ray_that_never_starts_names_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "init", Mock(side_effect=Exception("timed out")))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # it keeps Ray's logs
        monkeypatch.setenv("RAY_TMPDIR", folder)
        with pytest.raises(OrchestratorError, match="two tries: timed out") as raised, local_ray():
            pass
    assert has(raised.value.remedy, "the load is", "logs")
    assert ray.init.call_count == 2


def test_few_open_files_are_refused_before_ray_is_started() -> None:
    few = ["bash", "-c", 'ulimit -n 100; exec "$@"', "-", sys.executable, "-c"]
    code = "from fleetrank.orchestrator.dispatch.local_ray import local_ray as r; r().__enter__()"
    done = subprocess.run([*few, code], capture_output=True, text=True, check=False)
    assert has(done.stderr, "open files", "is 100", "ulimit -n 4096")
