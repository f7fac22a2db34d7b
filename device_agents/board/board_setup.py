"""Installs NumPy and runtimes on a board: fetched here, sent, installed there without a network.

So it does not matter whether the board has a network, a right clock or pip.
"""

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.board.board_link import FOLDER, BoardFile, BoardLink, Reply
from fleetrank.device_agents.board.there.keeper import INSTALL_LIMIT_S
from fleetrank.device_agents.contract.agent import Say
from fleetrank.device_agents.errors import (
    BadOutputError,
    PermanentError,
    TransientError,
    UnsupportedError,
)
from fleetrank.device_agents.runtimes.runner import RUNNERS
from fleetrank.foundation.errors import count_of, visible_line
from fleetrank.foundation.files import file_sha256, temporary_folder
from fleetrank.foundation.vocabulary import Runtime

VENV_PYTHON = f"{FOLDER}/venv/bin/python"
_OLDEST_GLIBC_MINOR = 17
"""Source: PEP 600 and PEP 599: manylinux2014 is glibc 2.17, the oldest of these architectures."""
_FETCH_LIMIT_S = 1800.0
_LIBC = re.compile(r"glibc 2\.(\d{1,3})", re.ASCII)
_TAIL = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardPython:
    """The Python of a board, as pip describes one.

    Attributes:
        version: such as `3.11`.
        platform: of `sysconfig`, which is that of the user's programs, not that of the kernel.
        libc: such as `glibc 2.36`.
    """

    version: str
    platform: str
    libc: str

    def tags(self) -> tuple[str, ...]:
        """The wheels' platforms that it can use, newest first.

        Pip compares the listed names only, so all must be listed.

        Raises:
            UnsupportedError: another C library than glibc, or one that is too old.
        """
        match = _LIBC.fullmatch(self.libc)
        if match is None:
            raise UnsupportedError(
                f"the board's C library is {self.libc!r}, for which no runtime has wheels",
                "use a Linux with glibc, such as Debian or Ubuntu",
            )
        machine = self.platform.removeprefix("linux-").replace("-", "_")
        minors = range(int(match[1]), _OLDEST_GLIBC_MINOR - 1, -1)
        return (*(f"manylinux_2_{minor}_{machine}" for minor in minors), f"manylinux2014_{machine}")


def requirements_of(runtimes: Sequence[str]) -> tuple[str, ...]:
    """NumPy and the runtimes' libraries, each in the version of this host if it is installed here.

    Raises:
        UnsupportedError: a name is not that of a runtime.
    """
    for name in runtimes:
        if name not in set(Runtime):
            raise UnsupportedError(
                f"`setup={name}`: not a runtime", f"use: {', '.join(sorted(Runtime))}"
            )
    names = ["numpy", *(RUNNERS.load(name).library.distribution for name in runtimes)]
    return tuple(_pinned(name) for name in names)


def _pinned(name: str) -> str:
    try:
        # A local version such as 2.9+cpu is in no index.
        return f"{name}=={importlib.metadata.version(name).partition('+')[0]}"
    except importlib.metadata.PackageNotFoundError:
        return name


def set_up(link: BoardLink, runtimes: Sequence[str], say: Say) -> str:
    """Makes the environment on the board; returns its Python.

    Raises:
        FleetError: no wheels fit the board, or it has no room for them.
    """
    requirements = requirements_of(runtimes)
    board = _python_of(link.ask("platform", {}))
    with temporary_folder("wheels") as folder:
        wheels = folder / "wheels"
        wheels.mkdir()
        got = _fetch(requirements, board, wheels, say)
        packed = _packed(wheels, folder / "wheels.zip")
        say(f"sending {count_of(len(list(wheels.iterdir())), 'wheel')} to {link.host}")
        link.push(packed, (), wait_s=0.0)
        link.ask(
            "setup", {"name": packed.name, "requirements": list(got)}, timeout_s=INSTALL_LIMIT_S
        )
    say(f"installed on {link.host}: {', '.join(got)}")
    return VENV_PYTHON


def _python_of(reply: Reply) -> BoardPython:
    try:
        return BoardPython(
            version=str(reply["python"]), platform=str(reply["platform"]), libc=str(reply["libc"])
        )
    except KeyError as error:
        raise BadOutputError(f"the board does not state its {error}", "try again") from error


def _fetch(
    requirements: Sequence[str], board: BoardPython, folder: Path, say: Say
) -> Sequence[str]:
    """Downloads the wheels; in other versions where this host's have none for the board."""
    unpinned = tuple(one.partition("==")[0] for one in requirements)
    for wanted in dict.fromkeys((tuple(requirements), unpinned)):
        say(f"fetching for Python {board.version} on {board.platform}: {', '.join(wanted)}")
        problem = _download((*wanted, "pip"), board, folder)
        if problem is None:
            return wanted
        for file in folder.iterdir():
            file.unlink()
    raise TransientError(
        f"no wheels for Python {board.version} on {board.platform}, {board.libc}: {problem}",
        "check the network here; choose other runtimes, or another Python there with `python=PATH`",
    )


def _download(wanted: Sequence[str], board: BoardPython, folder: Path) -> str | None:
    """Returns pip's last words if it fails."""
    platforms = [word for tag in (*board.tags(), "any") for word in ("--platform", tag)]
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-input", "--only-binary=:all:", "--implementation", "cp",
        "--python-version", board.version, *platforms, "--dest", str(folder), *wanted,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_FETCH_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"pip takes more than {_FETCH_LIMIT_S:g} s"
    return None if done.returncode == 0 else visible_line(done.stderr.strip()[-_TAIL:])


def _packed(wheels: Path, path: Path) -> BoardFile:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in _files(wheels):
            archive.write(file, file.name)
    return BoardFile(path=path, sha256=file_sha256(path))


def _files(wheels: Path) -> Iterator[Path]:
    found = sorted(wheels.iterdir())
    if not found:
        raise PermanentError("pip fetched no wheels", "check pip's configuration on this host")
    return iter(found)
