"""The recipes of CONTRIBUTING.md: followed to the letter in a copy of the packages."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from doc_blocks import Block, blocks_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("analysis", "device_agents", "foundation", "models", "orchestrator")
PAGE = ROOT / "CONTRIBUTING.md"
_INCLUDED = re.compile(r'^--8<-- "(docs/recipes/[a-z_]+\.py)"\n', re.MULTILINE)
OF_WORKSPACES = "cards/"
"""A file of this folder belongs to the user's workspace, not to the packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One section of the page.

    Attributes:
        files: what is written or changed, in order: whole files, and changes in the form of `diff`.
        proof: shell commands that show the new thing at work.
    """

    title: str
    files: tuple[Block, ...]
    proof: str


def recipes() -> dict[str, Recipe]:
    """The sections with files, by title."""
    found = {}
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        blocks = [replace(block, text=whole(block.text)) for block in blocks_of(section)]
        files = tuple(block for block in blocks if block.title is not None)
        proof = "".join(block.text for block in blocks if block.language == "sh")
        if files:
            found[title] = Recipe(title=title, files=files, proof=proof)
    return found


def whole(text: str) -> str:
    """The text with the files that it includes, as MkDocs' `pymdownx.snippets` shows it."""
    return _INCLUDED.sub(lambda found: (ROOT / found[1]).read_text(encoding="utf-8"), text)


class Copy:
    """A copy of the packages, and a workspace in which its command runs."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self._packages = folder / "copy" / "fleetrank"
        ignored = shutil.ignore_patterns("__pycache__")
        for name in PACKAGES:
            shutil.copytree(ROOT / name, self._packages / name, ignore=ignored)
        for path in (ROOT / "orchestrator/public").glob("*.*"):
            shutil.copy(path, self._packages / path.name)
        command = folder / "bin" / "fleetrank"
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m fleetrank "$@"\n')
        command.chmod(0o755)
        self._environment = os.environ | {
            "PATH": f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(self._packages.parent),
            "COLUMNS": "200",
        }

    @property
    def import_path(self) -> str:
        """The folder that contains the copied packages, for `PYTHONPATH`."""
        return str(self._packages.parent)

    def follow(self, recipe: Recipe) -> set[str]:
        """Writes and changes its files; returns the paths that it touched."""
        return {self._take(block) for block in recipe.files}

    def _take(self, block: Block) -> str:
        assert block.title is not None
        base = self.workspace if block.title.startswith(OF_WORKSPACES) else self._packages
        path = base / block.title
        if block.language == "diff":
            path.write_text(changed(path.read_text(encoding="utf-8"), block.text))
        else:
            assert not path.exists(), f"{block.title} exists already"
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
        return block.title

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Runs shell commands in the workspace; both streams are in `stdout`."""
        return subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=self.workspace,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )


def changed(text: str, change: str) -> str:
    """The text after a change in the form of `diff`: the lines to find, to add and to remove.

    A line `@@` separates two places.

    Raises:
        AssertionError: the lines to find are not there exactly once.
    """
    for place in re.split(r"^@@.*\n", change, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in place.splitlines(keepends=True)]
        before = "".join(line for sign, line in lines if sign != "+")
        after = "".join(line for sign, line in lines if sign != "-")
        assert text.count(before) == 1, f"{text.count(before)} times in the file:\n{before}"
        text = text.replace(before, after)
    return text
