"""A phone that the real adb is connected to, in both supported versions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from adb_bench import Adb, OnePhone, adb_of_the_wheel, connect, serve_adb
from daily import daily
from programs import need


@pytest.fixture(scope="session", params=daily(["36", "29"], "36"))
def adb(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adb]:
    binary = adb_of_the_wheel() if request.param == "36" else need("adb")
    yield from serve_adb(binary, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def phone(adb: Adb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnePhone]:
    """A Pixel 8, which the tests of a module share."""
    yield from connect(adb, tmp_path_factory.mktemp("phones"), "pixel-8")


@pytest.fixture
def old_phone(adb: Adb, tmp_path: Path) -> Iterator[OnePhone]:
    """A Nexus 5: no shell v2, checksums, messages of 4 KiB."""
    yield from connect(adb, tmp_path, "nexus-5")
