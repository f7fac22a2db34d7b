"""The kind `cpu`: the processor of a host."""

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import (
    DeviceOptions,
    EnergyMeter,
    HostShare,
    Kind,
    Pinning,
    Traits,
)
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import Runtime

_TRAITS = Traits(
    infers=True,
    share=HostShare.ALONE,
    needs_quiet=True,
    pinning=Pinning.HOST_CORES,
    energy=EnergyMeter.HOST,
    is_primed=True,
    takes_turns=True,
)


def _create_agent(options: DeviceOptions) -> Agent:
    from fleetrank.device_agents.cpu.agent import CpuAgent

    return CpuAgent(options)


def _default_backend(runtime: Runtime) -> str:
    from fleetrank.device_agents.runtimes.runner import default_backend

    return default_backend(runtime)


def _check_library(runtime: Runtime) -> None:
    from fleetrank.device_agents.runtimes.runner import check_library

    check_library(runtime)


def _why_not_profiled(execution: Execution) -> str | None:
    from fleetrank.device_agents.profiling.profiler import why_not_profiled

    return why_not_profiled(execution)


def _why_not_replicated(execution: Execution) -> str | None:
    from fleetrank.device_agents.host.replica_client import why_not_replicated

    return why_not_replicated(execution)


CPU = Kind(
    create_agent=_create_agent,
    traits_of=lambda _options: _TRAITS,
    default_backend=_default_backend,
    check_library=_check_library,
    is_host_cpu=True,
    why_not_profiled=_why_not_profiled,
    why_not_replicated=_why_not_replicated,
)
