"""Registers boards, and deletes what fleetrank left on one when it is removed."""

import importlib.metadata
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from fleetrank.device_agents.board.agent import BoardAgent
from fleetrank.device_agents.board.board_files import name_there
from fleetrank.device_agents.board.board_link import FOLDER, BoardLink, connection_to
from fleetrank.device_agents.board.board_probe import NUMPY, probe_board
from fleetrank.device_agents.board.board_state import BoardOptions, read_options
from fleetrank.device_agents.board.ssh import SshConnection
from fleetrank.device_agents.board.there.environment import INSTALL_LIMIT_S
from fleetrank.device_agents.board.there.inspection import BoardProbe
from fleetrank.device_agents.canary import CANARY_LIMIT_S, CANARY_POLICY
from fleetrank.device_agents.contract.agent import Cluster, Say
from fleetrank.device_agents.contract.kind import CanaryPlan, Fact, RegistrationRequest
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import (
    PermanentError,
    TransientError,
    UnsupportedError,
    UnusableDeviceError,
)
from fleetrank.device_agents.runtimes.runner import RUNNERS
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.temporary import temporary_folder
from fleetrank.foundation.visible_text import visible_line
from fleetrank.foundation.vocabulary import Runtime, Tier
from fleetrank.foundation.wording import count_of

VENV_PYTHON = f"{FOLDER}/venv/bin/python"
_OLDEST_GLIBC_MINOR = 17
"""Source: PEP 600 and PEP 599: manylinux2014 is glibc 2.17, the oldest of these architectures."""
_FETCH_LIMIT_S = 1800.0
_LIBC = re.compile(r"glibc 2\.(\d{1,3})", re.ASCII)
_TAIL = 300


def wheel_tags(platform: str, libc: str) -> tuple[str, ...]:
    """The wheels' platforms that a board can use, newest first.

    Pip compares the listed names only, so all must be listed.

    Args:
        platform: of `sysconfig`, which is that of the user's programs, not that of the kernel.
        libc: such as `glibc 2.36`.

    Raises:
        UnsupportedError: another C library than glibc, or one that is too old.
    """
    match = _LIBC.fullmatch(libc)
    if match is None:
        raise UnsupportedError(
            f"the board's C library is {libc!r}, for which no runtime has wheels",
            "use a Linux with glibc, such as Debian or Ubuntu",
        )
    machine = platform.removeprefix("linux-").replace("-", "_")
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


def set_up(link: BoardLink, options: BoardOptions, runtimes: Sequence[str], say: Say) -> str:
    """Makes the environment on the board; returns its Python.

    Raises:
        FleetError: no wheels fit the board, or it has no room for them.
    """
    requirements = requirements_of(runtimes)
    # The driver of its GPU may have no binding yet.
    board = probe_board(link, replace(options, gpu=None), tries_libraries=False)
    with temporary_folder("wheels") as folder:
        wheels = folder / "wheels"
        wheels.mkdir()
        got = _fetch(requirements, board, wheels, say)
        name = _packed(wheels, folder / "wheels.zip")
        say(f"sending {count_of(len(list(wheels.iterdir())), 'wheel')} to {link.host}")
        link.send(folder / "wheels.zip", name)
        link.call("set_up", name, tuple(got), timeout_s=INSTALL_LIMIT_S)
    say(f"installed on {link.host}: {', '.join(got)}")
    return VENV_PYTHON


def _fetch(requirements: Sequence[str], board: BoardProbe, folder: Path, say: Say) -> Sequence[str]:
    """Downloads the wheels; in other versions where this host's have none for the board."""
    unpinned = tuple(one.partition("==")[0] for one in requirements)
    for wanted in dict.fromkeys((tuple(requirements), unpinned)):
        say(f"fetching for Python {board.python} on {board.platform}: {', '.join(wanted)}")
        problem = _download((*wanted, "pip"), board, folder)
        if problem is None:
            return wanted
        for file in folder.iterdir():
            file.unlink()
    raise TransientError(
        f"no wheels for Python {board.python} on {board.platform}, {board.libc}: {problem}",
        "check the network here; choose other runtimes, or another Python there with `python=PATH`",
    )


def _download(wanted: Sequence[str], board: BoardProbe, folder: Path) -> str | None:
    """Returns pip's last words if it fails."""
    platforms = [
        word
        for tag in (*wheel_tags(board.platform, board.libc), "any")
        for word in ("--platform", tag)
    ]
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-input", "--only-binary=:all:", "--implementation", "cp",
        "--python-version", board.python, *platforms, "--dest", str(folder), *wanted,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_FETCH_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"pip takes more than {_FETCH_LIMIT_S:g} s"
    return None if done.returncode == 0 else visible_line(done.stderr.strip()[-_TAIL:])


def _packed(wheels: Path, path: Path) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in _files(wheels):
            archive.write(file, file.name)
    return name_there(path, file_sha256(path))


def _files(wheels: Path) -> Iterator[Path]:
    found = sorted(wheels.iterdir())
    if not found:
        raise PermanentError("pip fetched no wheels", "check pip's configuration on this host")
    return iter(found)


MAX_CLOCK_ERROR_S = 60
"""A board without a battery for its clock is off by days, not by seconds."""
_SHORT_S = 30.0


class BoardRegistrar:
    """Registers boards over ssh; `programs` is empty: a board runs the worker itself."""

    programs = ()
    address_in = "ssh"
    least_shares: Mapping[str, float] = MappingProxyType({})

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Takes the options of a board, if it has a file already."""
        self._options = options

    def meet(self, request: RegistrationRequest, say: Say) -> "NewBoard":
        """Connects, installs the measuring code and reads the board's properties.

        Raises:
            FleetError: it does not answer, or lacks Python, NumPy or every runtime.
        """
        given = {**self._options, **request.options, "ssh": request.address}
        options = read_options(given)
        connection = connection_to(options)
        if request.setup:
            link = BoardLink(connection, options.python)
            python = set_up(link, options, request.setup, say)
        else:
            python = options.python if "python" in given else _python_there(connection)
        link = BoardLink(connection, python)
        probe = probe_board(link, options, tries_libraries=True)
        for line in _lines_of(probe):
            say(line)
        _require_runtimes(probe, python)
        return NewBoard(given={**given, "python": python}, probe=probe, say=say)

    def identity_of(self, options: Mapping[str, OptionValue]) -> str | None:
        """The hash of the board's serial number, and which of its GPUs it is."""
        return _identity(options.get("board_hash"), options)

    def is_same(self, identity: str, other: str) -> bool:
        """Whether both are the hash of one serial number."""
        return identity == other

    def canary_tolerance(self, options: Mapping[str, OptionValue]) -> float:
        """As in its options."""
        return read_options(options).canary_tolerance

    def clean(self, options: Mapping[str, OptionValue]) -> None:
        """Deletes our folder on the board, and ends the shared connection."""
        read = read_options(options)
        connection = connection_to(read)
        try:
            BoardLink(connection, read.python).clean()
        except FleetError as error:
            raise UnusableDeviceError(
                f"its folder on the board was not deleted: {error.message}",
                f"ssh {shlex.quote(read.ssh)} rm -r {FOLDER}",
            ) from error
        finally:
            connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBoard:
    """A board that answered; `given` are the user's options."""

    given: Mapping[str, OptionValue]
    probe: BoardProbe
    say: Say

    @property
    def is_gpu(self) -> bool:
        """Whether the device is one of its GPUs."""
        return self.given.get("gpu") is not None

    @property
    def identity(self) -> str | None:
        """The hash of its serial number, and which of its GPUs it is."""
        return _identity(self.probe.identity, self.given)

    @property
    def model(self) -> str:
        """The name of its model, or that of its chip; of a GPU its name."""
        if self.is_gpu:
            return self.probe.facts.device_model
        return self.probe.model or self.probe.soc or "board"

    def options(self, before: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """The options for its agent."""
        probe = self.probe
        # A device tree is what boards have in place of a PC's firmware tables.
        tier = Tier.EDGE if probe.soc is not None else Tier.CPU
        tier = Tier.GPU if self.is_gpu else tier
        found: dict[str, OptionValue | None] = {
            "board_hash": probe.identity,
            "runtimes": ",".join(probe.runtimes),
            "cpus": len(probe.cpus),
            "caps_mhz": ",".join(f"{mhz:g}" for mhz in probe.caps_mhz) or None,
            "power_mode": probe.power_mode,
        }
        known = {name: value for name, value in found.items() if value is not None}
        kept = {name: value for name, value in before.items() if name not in found}
        options = {"tier": tier.value, **kept, **self.given, **known}
        read_options(options)
        return options

    @property
    def facts(self) -> dict[str, Fact]:
        """Those that change with the system, and the versions of the runtimes."""
        probe = self.probe
        facts: dict[str, Fact] = {
            name: getattr(probe, name)
            for name in ("model", "soc", "os", "libc", "python", "platform")
        } | {
            name: getattr(probe.facts, name)
            for name in ("arch", "memory_bytes", "logical_cores", "clock_max_mhz")
        }
        versions = {f"{name}_version": one for name, one in sorted(probe.versions)}
        return {**facts, "power_mode": probe.power_mode, **versions}

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """As the kernel shows them."""
        return self.probe.clusters

    def canary(self, options: Mapping[str, OptionValue]) -> CanaryPlan | None:
        """Of its processor, with the runtime of the canary's format."""
        if self.is_gpu:
            return None
        if Runtime.TFLITE not in self.probe.runtimes:
            self.say("no canary without tflite: only temperature and clocks are checked")
            return None
        return CanaryPlan(agent=BoardAgent(options), policy=CANARY_POLICY, timeout_s=CANARY_LIMIT_S)


def _python_there(connection: SshConnection) -> str:
    """The environment of `--setup` if it exists, otherwise the system's Python."""
    end = connection.run(["test", "-x", VENV_PYTHON], timeout_s=_SHORT_S)
    return VENV_PYTHON if end.exit_code == 0 else BoardOptions(ssh="").python


def _lines_of(probe: BoardProbe) -> Iterator[str]:
    yield f"{probe.model or probe.facts.device_model}, {probe.os}, Python {probe.python}"
    found = [f"{name} {version}" for name, version in sorted(probe.versions)]
    yield f"found: {', '.join(found) or 'no runtime'}"
    for name, problem in sorted(probe.problems):
        if "No module named" not in problem:
            yield f"{name} cannot be used: {problem}"
    now = datetime.now(UTC).timestamp()
    error_s = abs(probe.clock_s - now)
    if error_s > MAX_CLOCK_ERROR_S:
        yield f"its clock is off by {error_s:.0f} s: rows have the times of this host"


def _require_runtimes(probe: BoardProbe, python: str) -> None:
    setup = f"run `fleetrank devices add` with `ssh={probe.host}` and `setup=onnx,tflite`"
    if NUMPY not in dict(probe.versions):
        raise UnsupportedError(
            f"{python} on {probe.host} has no NumPy: {dict(probe.problems).get(NUMPY)}",
            f"{setup}, or name a Python that has it with `python=PATH`",
        )
    if not probe.runtimes:
        raise UnsupportedError(f"{python} on {probe.host} has no runtime", setup)


def _identity(board: OptionValue | None, options: Mapping[str, OptionValue]) -> str | None:
    gpu = options.get("gpu")
    return None if board is None else str(board) if gpu is None else f"{board}/{gpu}"
