"""Device kinds by name; a member is imported only when asked for."""

import importlib
from collections.abc import Mapping

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError

AGENTS: Mapping[str, str] = {
    "android": "fleetrank.device_agents.android.agent:AndroidAgent",
    "cpu": "fleetrank.device_agents.cpu.agent:CpuAgent",
    "cuda": "fleetrank.device_agents.cuda.agent:CudaAgent",
    "simulated": "fleetrank.device_agents.simulated.agent:SimulatedAgent",
}


def create_agent(kind: str, options: Mapping[str, OptionValue]) -> Agent:
    """Makes the agent of a device kind from the `options` of its device file.

    Every agent class takes its options as one mapping and refuses a name it does not know.

    Raises:
        PermanentError: no such kind, or an option the kind does not have.
    """
    if kind not in AGENTS:
        raise PermanentError(
            f"there is no agent for devices of kind {kind!r} yet",
            f"use one of: {', '.join(sorted(AGENTS))}; docs/gpu.md says what a new one takes",
        )
    module_name, class_name = AGENTS[kind].split(":")
    factory = getattr(importlib.import_module(module_name), class_name)
    agent: Agent = factory(options)
    return agent
