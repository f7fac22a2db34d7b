"""What a board reports at its registration, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetrank.device_agents.board.board_link import BoardLink, Reply
from fleetrank.device_agents.board.board_state import (
    BoardOptions,
    BoardState,
    parse_clusters,
    parse_model,
    parse_os,
    parse_soc,
    parse_state,
    require_identity,
)
from fleetrank.device_agents.contract.agent import Cluster, DeviceFacts
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.device_agents.runtimes.runner import RUNNERS
from fleetrank.foundation.codec import CodecError, Json, from_plain
from fleetrank.foundation.cpus import cores_fact
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.foundation.vocabulary import Runtime, Tier

PROBE_LIMIT_S = 600.0
"""Each of the runtimes is imported once, which takes up to two minutes from a memory card."""
NUMPY = "numpy"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardProbe:
    """A board that answered.

    Attributes:
        host: its name for ssh.
        facts: of its processor, as `host.conditions` reads them there.
        identity: hash of its serial number; `None` if it has none.
        model: its own name; `None` if it has none.
        clusters: as `board_state.parse_clusters`.
        platform: of its Python, such as `linux-aarch64`; the wheels must match it.
        versions: of NumPy and of each runtime that can be imported.
        problems: why another one cannot be imported, with the last line of the error.
        clock_s: its clock, in seconds since 1970.
    """

    host: str
    facts: DeviceFacts
    identity: str | None
    model: str | None
    soc: str | None
    os: str | None
    libc: str
    python: str
    platform: str
    cpus: tuple[int, ...]
    clusters: tuple[Cluster, ...]
    state: BoardState
    versions: Mapping[str, str]
    problems: Mapping[str, str]
    clock_s: int | None

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that can be used, sorted."""
        return tuple(sorted(set(self.versions) & set(Runtime)))

    def require(self, options: BoardOptions) -> None:
        """Returns if this is the board with these options; raises as `require_identity`."""
        require_identity(options, self.identity)


def probe_board(link: BoardLink, options: BoardOptions, *, tries_libraries: bool) -> BoardProbe:
    """Asks a board; installs the measuring code there if it is missing.

    Args:
        link: to the board.
        options: say whether the device is a GPU, whose driver then answers.
        tries_libraries: import NumPy and each runtime there, which takes seconds to minutes.

    Raises:
        FleetError: it does not answer, or cannot run the code.
    """
    libraries = _libraries() if tries_libraries else {}
    request = {"libraries": libraries, "gpu": options.gpu_options}
    reply = link.ask("probe", request, timeout_s=PROBE_LIMIT_S)
    try:
        return _probe_of(link.host, reply)
    except (CodecError, KeyError, TypeError, ValueError) as error:
        raise BadOutputError(
            f"{link.host}: its answer to the probe is not valid: {error}", "try again"
        ) from error


def _libraries() -> dict[str, list[str]]:
    """Module and distribution of NumPy and of each runtime."""
    runners = ((runtime.value, RUNNERS.load(runtime).library) for runtime in Runtime)
    found = {name: [library.module, library.distribution] for name, library in runners}
    return {NUMPY: [NUMPY, NUMPY], **found}


def _probe_of(host: str, reply: Reply) -> BoardProbe:
    text = {name: str(value) for name, value in _object(reply["text"]).items()}
    libraries = {name: _object(found) for name, found in _object(reply["libraries"]).items()}
    usable = from_plain(_Cpus, {"cpus": reply["cpus"]}).cpus
    clock = text.get("clock_s", "")
    return BoardProbe(
        host=host,
        facts=from_plain(DeviceFacts, reply["facts"]),
        identity=None if reply["identity"] is None else str(reply["identity"]),
        model=parse_model(text),
        soc=parse_soc(text),
        os=parse_os(text),
        libc=str(reply["libc"]),
        python=str(reply["python"]),
        platform=str(reply["platform"]),
        cpus=usable,
        clusters=parse_clusters(text, usable),
        state=parse_state(text),
        versions={n: str(found["version"]) for n, found in libraries.items() if "version" in found},
        problems={
            name: shortened(visible_line(str(found["problem"])), 200)
            for name, found in libraries.items()
            if "problem" in found
        },
        clock_s=int(clock) if clock.isdecimal() else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cpus:
    cpus: tuple[int, ...]


def _object(plain: Json) -> dict[str, Json]:
    if not isinstance(plain, dict):
        raise TypeError(f"{plain!r} is not an object")
    return plain


def to_device_facts(probe: BoardProbe, options: BoardOptions) -> DeviceFacts:
    """The facts that rows store; the device model is the board's name with its power mode.

    Of a GPU it is the GPU's name, and the facts are as the agent of GPUs gives them.
    """
    found = probe.facts
    if options.gpu is not None:
        return replace(found, tier=Tier(options.tier))
    name = probe.model or probe.soc or found.device_model
    mode = probe.state.power_mode
    extra = {
        "soc": probe.soc, "libc": probe.libc, "python": probe.python, "power_mode": mode,
        "runtimes": options.runtimes, **cores_fact(tuple(one.cores for one in probe.clusters)),
    }  # fmt: skip
    return replace(
        found,
        device_model=name if mode is None else f"{name} ({mode})",
        tier=Tier(options.tier),
        os=f"{probe.os}, {found.os}" if probe.os else found.os,
        extra=tuple(sorted((key, value) for key, value in extra.items() if value)),
    )
