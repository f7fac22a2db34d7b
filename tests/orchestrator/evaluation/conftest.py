"""A workspace for the evaluations of one file."""

from pathlib import Path

import pytest

from fleetrank.orchestrator.compute.child import answer_in
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.user_data import Act, DataChild, DataRequest, DataService
from fleetrank.orchestrator.workspace.workspace import Workspace


class _Here(DataChild):
    """Does the work of the child in this process, which is quicker."""

    def __init__(self) -> None:
        super().__init__()
        self._answering = DataService()

    def ask(self, act: Act, where: str, content: bytes, details: str = "") -> bytes:
        asked = DataRequest(act=act, where=where, n_bytes=len(content), details=details)
        answer = answer_in(bytearray(self._answering.reply(asked, content)))
        assert answer is not None
        if answer[0].refusal is not None:
            raise UsageError(*answer[0].refusal[1:])
        return answer[1]


@pytest.fixture
def here() -> DataChild:
    return _Here()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One workspace, so that each file is exported once."""
    folder = tmp_path_factory.mktemp("eval")
    Workspace.init(folder)
    return folder
