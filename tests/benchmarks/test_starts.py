"""Each benchmark starts by itself, without the paths that tests have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "benchmarks"
_IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    sys.path[:] = [one for one in sys.path if not one.endswith("makers")]
    importlib.import_module(name)
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_every_benchmark_finds_what_it_imports() -> None:
    names = sorted(path.stem for path in _FOLDER.glob("*.py"))
    environment = os.environ | {"PYTHONPATH": str(_FOLDER)}
    ended = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL, *names],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert len(names) > 20
