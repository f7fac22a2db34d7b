"""Sweeps of the real command, watched while they run."""

import json
import subprocess
from collections import Counter
from typing import Protocol

import pytest

MODES = ["--inline", pytest.param("", marks=pytest.mark.ray)]
"""In the command's own process, and through the Ray that it starts."""


class SweepFolder(Protocol):
    """What the fixture `folder` gives."""

    def start(self, *arguments: str) -> subprocess.Popen: ...

    def rows(self) -> list[dict[str, object]]: ...


def start(folder: SweepFolder, mode: str, command: str = "run") -> subprocess.Popen:
    arguments = ["sweep", command, *(["t"] if command == "run" else []), "--progress", "jsonl"]
    return folder.start(*arguments, *([mode] if mode else []))


def wait_for_repeats(process: subprocess.Popen, count: int, event: str = "RepeatFinished") -> None:
    """Reads the progress until so many repeats have finished (or started)."""
    while count:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        count -= json.loads(line)["event"] == event


def wait_for_notice(process: subprocess.Popen, message: str) -> None:
    """Reads the progress until it shows this notice."""
    while line := process.stdout.readline():
        if json.loads(line).get("message") == message:
            return
    raise AssertionError(process.stderr.read())


def ended(process: subprocess.Popen, limit_s: float = 60) -> tuple[int, str]:
    _out, error = process.communicate(timeout=limit_s)
    return process.returncode, error


def ok_repeats(folder: SweepFolder) -> Counter:
    return Counter(
        (row["cell_key"], row["repeat"]) for row in folder.rows() if row["status"] == "ok"
    )
