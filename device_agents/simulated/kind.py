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


def _traits_of(options: DeviceOptions) -> Traits:
    duration_s = options.get("duration_s", 0.0)
    # The options are not checked yet; the agent rejects what is not a duration.
    is_duration = isinstance(duration_s, int | float) and duration_s >= 0
    return Traits(
        origin=Origin.SIMULATED,
        pinning=Pinning.COUNTED,
        opens_files=False,
        repeat_s=float(duration_s) if is_duration else None,
    )


SIMULATED = Kind(
    create_agent=_create_agent,
    traits_of=_traits_of,
    default_backend=_default_backend,
)
