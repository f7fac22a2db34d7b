"""A workspace with two sweeps."""

from pathlib import Path

import pytest
from two_sweeps import GOES, KEPT, make_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "w", KEPT, GOES)
