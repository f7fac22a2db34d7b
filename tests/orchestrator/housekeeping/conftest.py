"""A workspace with two sweeps."""

import shutil
from pathlib import Path

import pytest
from two_sweeps import GOES, KEPT, make_workspace


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("made") / "w", KEPT, GOES)


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Path:
    """Of its own."""
    return Path(shutil.copytree(made, tmp_path / "w"))
