"""Makes a virtual environment on a board from wheels that were sent; uses no network."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from fleetrank.device_agents.errors import PermanentError

INSTALL_LIMIT_S = 1500.0
"""PyTorch takes ten minutes to unpack on a memory card."""
_TAIL = 300


def make_environment(folder: Path, wheels: Path, requirements: Sequence[str]) -> None:
    """Makes or completes `FOLDER/venv`.

    Pip itself is among the wheels: the Python of Debian and its relatives has none for a new
    environment.

    Args:
        folder: of fleetrank on this board.
        wheels: a zip file of wheels.
        requirements: as for pip.

    Raises:
        PermanentError: with the last lines of the program that failed.
    """
    unpacked = folder / "wheels"
    shutil.rmtree(unpacked, ignore_errors=True)
    with zipfile.ZipFile(wheels) as archive:
        archive.extractall(unpacked)
    python = folder / "venv" / "bin" / "python"
    try:
        if not python.exists():
            _run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
        pip = next(unpacked.glob("pip-*.whl")) / "pip"
        options = ["--no-index", "--disable-pip-version-check", "--no-input", "--quiet"]
        find = ["--find-links", str(unpacked)]
        _run([str(python), str(pip), "install", *options, *find, *requirements])
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
        wheels.unlink()


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            list(command), check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=INSTALL_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise PermanentError(
            f"{command[0]} takes more than {INSTALL_LIMIT_S:g} s", "install the runtimes by hand"
        ) from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[-_TAIL:]
        raise PermanentError(
            f"{' '.join(command[1:4])} failed on the board: {said}",
            "install NumPy and the runtimes there by hand, then register with `python=PATH`",
        )
