"""A workspace with names that try to be markup, and a server over it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fleet_rows import hostile_results
from serving import Served, serving


@pytest.fixture(scope="session")
def hostile_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    (root / "cluster.yaml").touch()
    hostile_results(root / "results")
    return root


@pytest.fixture(scope="session")
def served(hostile_workspace: Path, own_folders: None) -> Iterator[Served]:
    with serving(hostile_workspace) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.base, timeout=300.0) as found:
        yield found
