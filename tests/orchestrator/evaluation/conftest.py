"""A workspace for the evaluations of one file."""

from pathlib import Path

import pytest

from fleetrank.orchestrator.workspace.workspace import Workspace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One workspace, so that each file is exported once."""
    folder = tmp_path_factory.mktemp("eval")
    Workspace.init(folder)
    return folder
