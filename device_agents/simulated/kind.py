"""The kind `simulated`: its traits and its default backends."""

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import DeviceOptions, Kind, Pinning, Traits
from fleetrank.foundation.vocabulary import Origin, Runtime


def _create_agent(options: DeviceOptions) -> Agent:
    from fleetrank.device_agents.simulated.agent import SimulatedAgent

    return SimulatedAgent(options)


def _default_backend(runtime: Runtime) -> str:
    from fleetrank.device_agents.runtimes.runner import default_backend

    return default_backend(runtime)


_TRAITS = Traits(origin=Origin.SIMULATED, pinning=Pinning.COUNTED)
SIMULATED = Kind(
    create_agent=_create_agent,
    traits_of=lambda _options: _TRAITS,
    default_backend=_default_backend,
)
