"""Watches the clocks of a phone's cores while a program runs, from a thread of this host.

Many phones lower their clock caps at rest and raise them under load, so only caps under load say
whether a phone is slowed down. One read is one short script that starts no process.
"""

from dataclasses import dataclass

from fleetrank.device_agents.android.execution.energy_run import LAST_S
from fleetrank.device_agents.android.execution.phone_watch import LOOK_TIMEOUT_S, PhoneWatch
from fleetrank.device_agents.android.phone import Phone, read_sections
from fleetrank.device_agents.android.state.phone_cores import CORES_SCRIPT, Core, parse_cores
from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.foundation.cpus import parse_cpu_list

_ALLOWED_SCRIPT = """
section allowed
read -r pid < FILE && while read -r name value; do
  case $name in Cpus_allowed_list:) echo "$value" ;; esac
done < "/proc/$pid/status"
"""
"""The cores that the kernel gave the program: it leaves out those of the mask that are offline."""
EVERY_S = 1.0
FIRST_S = 0.2
"""A short program has one look at least; before it, the clocks are those of a phone at rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CoresAndMask:
    cores: tuple[Core, ...]
    allowed: tuple[int, ...]


class CoreWatch(PhoneWatch[_CoresAndMask]):
    """Looks once a second at the clocks of all cores and at the program's own cores."""

    def __init__(self, phone: Phone, pid_file: str) -> None:
        """`pid_file` has the number of the program's process; a path without quotes or spaces."""
        self._phone = phone
        self._script = CORES_SCRIPT + _ALLOWED_SCRIPT.replace("FILE", pid_file)
        super().__init__(self._see, first_s=FIRST_S, every_s=EVERY_S)

    @property
    def looks(self) -> tuple[tuple[Core, ...], ...]:
        """The cores at each look during the program, in order; after the block."""
        return tuple(look.seen.cores for look in self.taken(last_s=LAST_S))

    @property
    def times_s(self) -> tuple[float, ...]:
        """When each of these looks ended, in seconds since the program was started."""
        taken = self.taken(last_s=LAST_S)
        return tuple((look.end_ns - self.began_ns) / 1e9 for look in taken)

    @property
    def affinity(self) -> tuple[int, ...] | None:
        """The cores that the program could use; `None` if no look saw it."""
        masks = (look.seen.allowed for look in self.taken())
        return next((mask for mask in reversed(tuple(masks)) if mask), None)

    def _see(self, stop_requested: StopRequested) -> _CoresAndMask:
        sections = read_sections(
            self._phone, self._script, timeout_s=LOOK_TIMEOUT_S, stop_requested=stop_requested
        )
        return _CoresAndMask(
            cores=parse_cores(sections.get("cores", "")),
            allowed=parse_cpu_list(sections.get("allowed", "").strip()),
        )
