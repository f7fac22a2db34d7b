"""What a board reports at its registration, as values."""

from dataclasses import replace

from fleetrank.device_agents.board.board_link import BoardLink, no_result
from fleetrank.device_agents.board.board_state import BoardOptions
from fleetrank.device_agents.board.host_calls import device_there
from fleetrank.device_agents.board.there.inspection import BoardProbe
from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.runtimes.runner import RUNNERS
from fleetrank.foundation.codec import CodecError, from_plain
from fleetrank.foundation.cpus import cores_fact
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.foundation.vocabulary import Runtime, Tier

PROBE_LIMIT_S = 600.0
"""Each of the runtimes is imported once, which takes up to two minutes from a memory card."""
NUMPY = "numpy"


def probe_board(link: BoardLink, options: BoardOptions, *, tries_libraries: bool) -> BoardProbe:
    """Asks a board; installs the measuring code there if it is missing.

    Args:
        link: to the board.
        options: say whether the device is a GPU, whose driver then answers.
        tries_libraries: import NumPy and each runtime there, which takes seconds to minutes.

    Raises:
        FleetError: it does not answer, or cannot run the code.
    """
    libraries = _libraries() if tries_libraries else ()
    reply = link.call("inspect", device_there(options), libraries, timeout_s=PROBE_LIMIT_S)
    try:
        probe = from_plain(BoardProbe, reply)
    except CodecError as error:
        raise no_result(error.message) from error
    said = ((name, shortened(visible_line(text), 200)) for name, text in probe.problems)
    return replace(probe, problems=tuple(said))


def _libraries() -> tuple[tuple[str, str, str], ...]:
    """Name, module and distribution of NumPy and of each runtime."""
    runners = ((runtime.value, RUNNERS.load(runtime).library) for runtime in Runtime)
    found = ((name, library.module, library.distribution) for name, library in runners)
    return (NUMPY, NUMPY, NUMPY), *found


def to_device_facts(probe: BoardProbe, options: BoardOptions) -> DeviceFacts:
    """The facts that rows store; the device model is the board's name with its power mode.

    Of a GPU it is the GPU's name, and the facts are as the agent of GPUs gives them.
    """
    found = probe.facts
    if options.gpu is not None:
        return replace(found, tier=Tier(options.tier))
    name = probe.model or probe.soc or found.device_model
    mode = probe.power_mode
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
