"""Registers boards, and deletes what fleetrank left on one when it is removed."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from fleetrank.device_agents.board.agent import BoardAgent
from fleetrank.device_agents.board.board_link import FOLDER, BoardLink
from fleetrank.device_agents.board.board_probe import (
    CANARY_LIMIT_S,
    CANARY_POLICY,
    NUMPY,
    BoardProbe,
    probe_board,
)
from fleetrank.device_agents.board.board_setup import VENV_PYTHON, set_up
from fleetrank.device_agents.board.options import BoardOptions, read_options
from fleetrank.device_agents.board.ssh import SshConnection
from fleetrank.device_agents.contract.agent import Say
from fleetrank.device_agents.contract.registered import CanaryPlan, Fact, RegistrationRequest
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import UnsupportedError, UnusableDeviceError
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Runtime, Tier

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
        connection = SshConnection(options.target)
        if request.setup:
            python = set_up(BoardLink(connection, options.python, "setup"), request.setup, say)
        else:
            python = options.python if "python" in given else _python_there(connection)
        link = BoardLink(connection, python, "registration")
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
        connection = SshConnection(read.target)
        try:
            BoardLink(connection, read.python, "removal").clean()
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
            "caps_mhz": ",".join(f"{mhz:g}" for mhz in probe.state.caps_mhz) or None,
            "power_mode": probe.state.power_mode,
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
        versions = {f"{name}_version": one for name, one in sorted(probe.versions.items())}
        return {**facts, "power_mode": probe.state.power_mode, **versions}

    @property
    def clusters(self) -> tuple[tuple[int, ...], ...]:
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
    found = [f"{name} {version}" for name, version in sorted(probe.versions.items())]
    yield f"found: {', '.join(found) or 'no runtime'}"
    for name, problem in sorted(probe.problems.items()):
        if "No module named" not in problem:
            yield f"{name} cannot be used: {problem}"
    now = datetime.now(UTC).timestamp()
    error_s = 0.0 if probe.clock_s is None else abs(probe.clock_s - now)
    if error_s > MAX_CLOCK_ERROR_S:
        yield f"its clock is off by {error_s:.0f} s: rows have the times of this host"


def _require_runtimes(probe: BoardProbe, python: str) -> None:
    setup = f"run `fleetrank devices add` with `ssh={probe.host}` and `setup=onnx,tflite`"
    if NUMPY not in probe.versions:
        raise UnsupportedError(
            f"{python} on {probe.host} has no NumPy: {probe.problems.get(NUMPY)}",
            f"{setup}, or name a Python that has it with `python=PATH`",
        )
    if not probe.runtimes:
        raise UnsupportedError(f"{python} on {probe.host} has no runtime", setup)


def _identity(board: OptionValue | None, options: Mapping[str, OptionValue]) -> str | None:
    gpu = options.get("gpu")
    return None if board is None else str(board) if gpu is None else f"{board}/{gpu}"
