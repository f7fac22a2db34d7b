"""A private adb server, in both versions that are supported, and a virtual phone on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from adb_bench import AdbBench, NewAgent, open_bench, phone_options, private_server
from daily import daily
from programs import need

from fleetrank.device_agents.android.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.agent import AndroidAgent


@pytest.fixture(scope="session", params=daily(["wheel", "debian"], "wheel"))
def adb_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AdbServer]:
    """A server with a home and a key of its own; Debian's is 29, the oldest supported."""
    adb = find_adb() if request.param == "wheel" else need("adb")
    with private_server(adb, tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture
def bench(adb_server: AdbServer, tmp_path: Path) -> Iterator[AdbBench]:
    """A phone of its own for each test, connected."""
    with open_bench(adb_server, tmp_path / "phones", Path.home()) as opened:
        yield opened


@pytest.fixture
def new_agent(bench: AdbBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NewAgent:
    """The agent of the phone; keyword arguments are further options."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = phone_options(bench.phone.server, bench.farmed.address)
    return lambda **more: AndroidAgent({**options, **more})


@pytest.fixture
def agent(new_agent: NewAgent) -> AndroidAgent:
    return new_agent()
