"""Options of a `board` device file."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetrank.device_agents.board.ssh import SshTarget
from fleetrank.device_agents.contract.agent import read_fields
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.vocabulary import Runtime, Tier

ONLY_GPU = "only"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardOptions:
    """How to reach a board, what was found on it, and when it is ready.

    Attributes:
        ssh: the board's name for ssh: HOST, USER@HOST or an alias.
        ssh_config: file in place of `~/.ssh/config`.
        python: name or path of Python 3.10 or newer there, with NumPy and the runtimes.
        board_hash: hash of its serial number at registration; another board is rejected.
        runtimes: found at registration, joined by commas; `None` if it was not registered.
        cpus: CPUs that a program may use there; `None` if unknown.
        caps_mhz: highest clock allowed at registration, of each frequency policy in its order,
            joined by commas; empty if the board reports none.
        power_mode: of a Jetson at registration: latencies differ by mode.
        gpu: the device is not the board's processor but this NVIDIA GPU or MIG instance: its UUID
            or the beginning of it; `only` for the only one.
        gpu_others: if other processes use the GPU, `refuse` waits and `flag` measures beside them.
        tier: `edge`, or `cpu` or `gpu` for a larger machine.
        min_cap_share: the allowed clock as a share of that at registration. Source: the same limit
            as for phones, `android.state.fitness`.
        max_temp_c: of the hottest sensor before a repeat. Source: raspberrypi/documentation: the
            clock falls from 80 C on; 10 C less leave room for the repeat.
        canary_tolerance: least accepted deviation of the canary from its registration. Source:
            medians of repeats within 15 % agree, as for the flag `repeats_disagree`.
        max_wait_s: how long a repeat is put off while the board is away, hot, slowed or in use.
        reconnect_s: how long to try again after the connection ended during a repeat.
    """

    ssh: str
    ssh_config: str | None = None
    python: str = "python3"
    board_hash: str | None = None
    runtimes: str | None = None
    cpus: int | None = None
    caps_mhz: str | None = None
    power_mode: str | None = None
    gpu: str | None = None
    gpu_others: str = "refuse"
    tier: str = Tier.EDGE.value
    min_cap_share: float = 0.85
    max_temp_c: float = 70.0
    canary_tolerance: float = 0.15
    max_wait_s: float = 600.0
    reconnect_s: float = 120.0

    @property
    def target(self) -> SshTarget:
        """The board in ssh's words."""
        return SshTarget(host=self.ssh, config=self.ssh_config)

    @property
    def gpu_options(self) -> dict[str, OptionValue] | None:
        """The options of a `cuda` device on the board; `None` for its processor."""
        if self.gpu is None:
            return None
        chosen: dict[str, OptionValue] = {} if self.gpu == ONLY_GPU else {"uuid": self.gpu}
        return {**chosen, "others": self.gpu_others}

    @property
    def found_runtimes(self) -> frozenset[str] | None:
        """The runtimes at registration; `None` if unknown."""
        return None if self.runtimes is None else frozenset(filter(None, self.runtimes.split(",")))

    @property
    def registered_caps_mhz(self) -> tuple[float, ...]:
        """The caps at registration; empty if unknown."""
        return tuple(float(mhz) for mhz in (self.caps_mhz or "").split(",") if mhz)


def read_options(options: Mapping[str, OptionValue]) -> BoardOptions:
    """Reads the options of a device file.

    Raises:
        PermanentError: an unknown or missing name, or a value that it cannot have.
    """
    read = read_fields(BoardOptions, "board", options)
    if read.tier not in set(Tier):
        raise PermanentError(
            f"option tier is {read.tier!r}", f"use one of: {', '.join(sorted(Tier))}"
        )
    if read.gpu_others not in ("refuse", "flag"):
        raise PermanentError(
            f"option gpu_others is {read.gpu_others!r}", "set it to refuse or flag"
        )
    unknown = (read.found_runtimes or frozenset()) - set(Runtime)
    if unknown:
        raise PermanentError(
            f"option runtimes names {min(unknown)!r}", f"use: {', '.join(sorted(Runtime))}"
        )
    try:
        _ = read.registered_caps_mhz
    except ValueError as error:
        raise PermanentError(
            f"option caps_mhz is {read.caps_mhz!r}", "give numbers joined by commas"
        ) from error
    return read
