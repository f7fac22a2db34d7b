"""Device kinds by name; a kind is imported only on request."""

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
    """Creates the agent of a device kind from the `options` of its device file.

    Every agent class takes its options as one mapping and rejects unknown names.

    Raises:
        PermanentError: unknown kind, or an option that the kind does not have.
    """
    if kind not in AGENTS:
        raise PermanentError(
            f"device kind {kind!r} is not supported yet",
            f"use one of: {', '.join(sorted(AGENTS))}; docs/gpu.md explains how to add one",
        )
    module_name, class_name = AGENTS[kind].split(":")
    factory = getattr(importlib.import_module(module_name), class_name)
    agent: Agent = factory(options)
    return agent
