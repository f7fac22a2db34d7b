"""A phone that the real adb is connected to, in both supported versions."""

from collections.abc import Iterator

import pytest
from adb_bench import OnePhone, adb_of_the_wheel, connect, private_server
from daily import daily
from programs import need

from fleetrank.device_agents.android.adb_server import AdbServer


@pytest.fixture(scope="session", params=daily(["36", "29"], "36"))
def adb_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AdbServer]:
    binary = adb_of_the_wheel() if request.param == "36" else need("adb")
    with private_server(binary, tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="module")
def phone(adb_server: AdbServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnePhone]:
    """A Pixel 8, which the tests of a module share."""
    yield from connect(adb_server, tmp_path_factory.mktemp("phones"), "pixel-8")
