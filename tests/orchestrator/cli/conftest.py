"""A command line as it is typed, with its exit code and what it printed."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetrank.orchestrator.cli.main import run


@dataclass(frozen=True)
class Answer:
    """What a command line printed and returned."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, read as JSON without NaN and Infinity."""
        return json.loads(self.out, parse_constant=pytest.fail)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of a table in JSON."""
        return list(self.json["rows"])


Asked = Callable[..., Answer]


@pytest.fixture
def asked(workspace: Path, capfd: pytest.CaptureFixture[str]) -> Asked:
    """Runs a command in the workspace of the test; a word with spaces is one argument."""

    def ask(line: str, *more: str, root: Path = workspace) -> Answer:
        capfd.readouterr()
        code = run([*line.split(), *more, "--workspace", str(root)])
        return Answer(code, *capfd.readouterr())

    return ask
