"""Older Pythons of this machine, for code that is sent to boards."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def find_python(version: str) -> str:
    """A Python of this version such as `3.9`; skips the test where there is none."""
    for path in _places(version):
        done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
        if done.returncode == 0 and f"Python {version}." in done.stdout:
            return path
    pytest.skip(f"needs a Python {version}")


def _places(version: str) -> Iterator[str]:
    if (found := shutil.which(f"python{version}")) is not None:
        yield found
    yield from map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
