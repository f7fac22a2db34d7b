"""JSON that is printed or served is made in one place."""

import re
from pathlib import Path

import pytest

import fleetrank.orchestrator

_ROOT = Path(fleetrank.orchestrator.__path__[0]).resolve().parent
_SHOWN = (
    "orchestrator/cli",
    "orchestrator/server",
    "orchestrator/progress.py",
    "analysis/tables/formats.py",
)
_FOR_TOML = "orchestrator/cli/models_command.py"
"""Writes values of TOML, whose text and numbers are those of JSON."""


@pytest.mark.parametrize("place", _SHOWN)
def test_what_people_and_programs_read_goes_through_strict_json(place: str) -> None:
    path = _ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files
    users = {
        file.relative_to(_ROOT).as_posix()
        for file in files
        if re.search(r"\bjson\.dumps", file.read_text(encoding="utf-8"))
    }
    assert users <= {_FOR_TOML}
