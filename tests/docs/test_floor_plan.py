"""The floor plan: no module without a joint, and one name for one module."""

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("analysis", "device_agents", "foundation", "models", "orchestrator")
MODULES = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
OF_EACH_KIND = {"__main__", "agent", "errors", "kind", "options"}
"""Modules that each kind of device, or each package, has under the same name."""
MOST_LINES = 800
"""Longer than this, a module is more than one topic."""


def test_no_module_is_longer_than_one_can_read_at_once() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {path: n for path, n in lengths.items() if n > MOST_LINES} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_says_which_module_is_meant(package: str) -> None:
    names = Counter(
        path.stem
        for path in MODULES
        if path.relative_to(ROOT).parts[0] == package and path.name != "__init__.py"
    )
    assert {name for name, n in names.items() if n > 1} <= OF_EACH_KIND


def test_each_folder_says_what_to_open_first() -> None:
    silent = [
        path
        for path in MODULES
        if path.name == "__init__.py"
        and "public" not in path.parts
        and "Open `" not in path.read_text(encoding="utf-8")
    ]
    assert silent == []
