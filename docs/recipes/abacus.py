"""The kind `abacus`: beads on the host's desk."""

from fleetrank.device_agents.contract.kind import HostShare, Kind, Traits
from fleetrank.device_agents.simulated.agent import SimulatedAgent
from fleetrank.foundation.vocabulary import Origin

ABACUS = Kind(
    create_agent=SimulatedAgent,
    traits_of=lambda options: Traits(
        origin=Origin.SIMULATED, share=HostShare.ALONE, needs_quiet=False
    ),
    default_backend=lambda runtime: f"beads-{runtime}",
)
