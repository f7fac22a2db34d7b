"""The folder of decisions imports nothing that reads a clock, a file or a random number."""

import ast
from pathlib import Path

import pytest

from fleetrank.orchestrator.dispatch import decide

MODULES = sorted(Path(decide.__path__[0]).glob("*.py"))
STANDARD = {"collections", "dataclasses", "enum", "math", "numpy", "typing", "zlib"}
NOT_PURE = {"failed", "utc_now"}
"""Functions of the contract that read the clock."""


def _imports(path: Path) -> set[tuple[str, str]]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "", alias.name) for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_decisions_import_values_and_functions_of_values_only(path: Path) -> None:
    for module, name in _imports(path):
        is_own = module.startswith("fleetrank.") and name not in NOT_PURE
        assert is_own or module.partition(".")[0] in STANDARD, (module, name)
        if module.startswith("fleetrank.orchestrator.dispatch"):
            assert module.startswith("fleetrank.orchestrator.dispatch.decide")
        assert not module.startswith("fleetrank.orchestrator.store")


def test_every_module_of_decisions_is_looked_at() -> None:
    assert {path.stem for path in MODULES} == {
        "__init__", "arrivals", "lane", "looks", "messages", "notices", "power", "retry", "state",
        "step", "tally", "work",
    }  # fmt: skip
