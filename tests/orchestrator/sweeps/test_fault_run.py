"""The small form of benchmarks/fault_run.py: a sweep over phones that fail in every way."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "fault_run.py"
SMALL = ("--phones", "5", "--models", "6", "--repeats", "1", "--faults", "25", "--span-s", "5")

pytestmark = [pytest.mark.adb, pytest.mark.thorough]


def test_every_repeat_ends_once_whatever_phones_do() -> None:
    command = [sys.executable, "-P", str(SCRIPT), "--quick", "--server-kills", "1", *SMALL]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "cells 30, repeats 30" in ended.stdout
    # One of each kind at least, and one end of the server.
    found = re.search(r"with (\d+) faults", ended.stdout)
    assert found is not None
    assert int(found[1]) >= 26
    assert "every repeat ended once" in ended.stdout
    assert "Traceback" not in ended.stderr
