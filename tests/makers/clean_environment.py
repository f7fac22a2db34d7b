"""A fresh environment of Python with what is built from this checkout, and its workspace."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("analysis", "device_agents", "foundation", "models", "orchestrator")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt")
OFFLINE = ("Failed to establish a new connection", "Temporary failure in name resolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment with the wheel, and a workspace beside it."""

    folder: Path
    workspace: Path

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return ran(self.folder / "bin" / "python", *arguments, cwd=self.workspace.parent)

    def fleetrank(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return ran(self.folder / "bin" / "fleetrank", *arguments, cwd=self.workspace)


def ran(program: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Nothing of this checkout: neither its folders nor a file of its modules.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [program, *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def pip(python: Path, *arguments: str, cwd: Path) -> None:
    done = ran(python, "-m", "pip", *arguments, cwd=cwd)
    if any(sign in done.stderr for sign in OFFLINE):
        pytest.skip("pip reaches no index")
    assert done.returncode == 0, done.stderr


def checkout(folder: Path) -> Path:
    """A copy of what a wheel is built from, because a build writes beside it."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder
