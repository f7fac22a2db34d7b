"""Device kinds by name; a kind is imported only on request. Adding one is one line of `KINDS`."""

from collections.abc import Mapping

from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import DeviceOptions, Kind
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.registry import Registry

KINDS = Registry[Kind](
    "device kind",
    {
        "android": "fleetrank.device_agents.android.kind:ANDROID",
        "board": "fleetrank.device_agents.board.kind:BOARD",
        "cpu": "fleetrank.device_agents.cpu.kind:CPU",
        "cuda": "fleetrank.device_agents.cuda.kind:CUDA",
        "simulated": "fleetrank.device_agents.simulated.kind:SIMULATED",
    },
)
HOST_CPU = "cpu"
"""The kind that every host has without a device file; it also verifies exported files."""


def load_kind(name: str) -> Kind:
    """The kind of this name; loads no runtime and contacts no device.

    Raises:
        PermanentError: unknown kind.
    """
    if name not in KINDS:
        raise PermanentError(
            f"device kind {name!r} is not supported yet",
            f"use one of: {', '.join(sorted(KINDS))}; docs/gpu.md explains how to add one",
        )
    return KINDS.load(name)


def load_kinds() -> Mapping[str, Kind]:
    """All kinds by name."""
    return {name: KINDS.load(name) for name in KINDS}


def create_agent(kind: str, options: DeviceOptions) -> Agent:
    """Creates the agent of a device kind from the `options` of its device file.

    Every agent class takes its options as one mapping and rejects unknown names.

    Raises:
        PermanentError: unknown kind, or an option that the kind does not have.
    """
    return load_kind(kind).create_agent(options)
