"""The kind `board`: a Linux machine over ssh."""

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import (
    DeviceOptions,
    EnergyMeter,
    HostShare,
    Kind,
    Pinning,
    Traits,
)
from fleetrank.device_agents.contract.registration import Registrar
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import Runtime

# The agent itself takes the host's lease, and only while it sends a file.
_TRAITS = Traits(
    share=HostShare.NONE, pinning=Pinning.COUNTED, is_primed=True, takes_turns=True, infers=True
)
# Without `infers`: an evaluation names no backend, and the default one is the processor's.
_GPU_TRAITS = Traits(share=HostShare.NONE, energy=EnergyMeter.DEVICE)


def _traits(options: DeviceOptions) -> Traits:
    return _TRAITS if options.get("gpu") is None else _GPU_TRAITS


def _create_agent(options: DeviceOptions) -> Agent:
    from fleetrank.device_agents.board.agent import BoardAgent

    return BoardAgent(options)


def _default_backend(runtime: Runtime) -> str:
    from fleetrank.device_agents.runtimes.runner import default_backend

    return default_backend(runtime)


def _registrar(options: DeviceOptions) -> Registrar:
    from fleetrank.device_agents.board.board_registrar import BoardRegistrar

    return BoardRegistrar(options)


def _why_not_profiled(execution: Execution) -> str | None:
    from fleetrank.device_agents.profiling.profiler import why_not_profiled

    return why_not_profiled(execution)


BOARD = Kind(
    create_agent=_create_agent,
    traits_of=_traits,
    default_backend=_default_backend,
    address_option="ssh",
    registrar=_registrar,
    why_not_profiled=_why_not_profiled,
)
"""Nothing here connects to a board."""
