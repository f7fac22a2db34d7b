"""The kind `abacus`: beads on the host's desk."""

from fleetrank.device_agents.simulated import SimulatedAgent
from fleetrank.foundation.vocabulary import Runtime


class Abacus(SimulatedAgent):
    """Moves its beads as the options say."""


def default_backend(runtime: Runtime) -> str:
    """The beads of a runtime."""
    return f"beads-{runtime}"
