"""A command line as it is typed, with its exit code and what it printed."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fleet_rows import write_results

from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.compute.child import Child
from fleetrank.orchestrator.compute.jobs import Job, Result


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


@pytest.fixture(scope="package")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet that commands only read; a module whose tests need other rows has its own."""
    root = tmp_path_factory.mktemp("fleet")
    (root / "cluster.yaml").touch()
    write_results(root / "results", n_samples=5)
    return root


@pytest.fixture
def asked(workspace: Path, capfd: pytest.CaptureFixture[str]) -> Asked:
    """Runs a command in the workspace of the test; a word with spaces is one argument."""

    def ask(line: str, *more: str, root: Path = workspace) -> Answer:
        capfd.readouterr()
        code = run([*line.split(), *more, "--workspace", str(root)])
        return Answer(code, *capfd.readouterr())

    return ask


@pytest.fixture(autouse=True, scope="package")
def kept_child() -> Iterator[None]:
    """Queries of a folder share one computing child, whose start is dear; it reads it each time."""
    numbers, child, of = itertools.count(), None, None

    def child_of(results: Path, **limits: Any) -> SimpleNamespace:
        nonlocal child, of
        if child is None or of != results:
            if child is not None:
                child.close()
            child, of = Child(results, **limits), results
        kept = child

        def ask(job: Job, _fingerprint: str, *, timeout_s: float) -> Result:
            return kept.ask(job, str(next(numbers)), timeout_s=timeout_s)

        return SimpleNamespace(ask=ask, close=lambda: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetrank.orchestrator.cli.query_command.Child", child_of)
        yield
    if child is not None:
        child.close()
