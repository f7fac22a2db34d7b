"""Waits for a condition instead of a fixed time, also for what a running sweep says."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

POLL_S = 0.02


def wait_until(is_so: Callable[[], bool], what: str, limit_s: float = 20.0) -> None:
    """Returns when the condition holds; `what` names it in the error of a wait that is too long."""
    end_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end_s, f"waited {limit_s:g} s for {what}"
        time.sleep(POLL_S)


def is_soon_gone(pid: int, limit_s: float = 60.0) -> bool:
    """Whether a process ends in time; one that nobody has waited for yet has ended, too."""
    end_s = time.monotonic() + limit_s
    while not (is_gone := _is_gone(pid)) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return is_gone


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


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


def ended(process: subprocess.Popen, limit_s: float = 180) -> tuple[int, str]:
    _out, error = process.communicate(timeout=limit_s)
    return process.returncode, error


def ok_repeats(folder: SweepFolder) -> Counter:
    return Counter(
        (row["cell_key"], row["repeat"]) for row in folder.rows() if row["status"] == "ok"
    )
