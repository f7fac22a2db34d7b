"""The clocks of a phone's cores while a program ran: whether, and when, they were lowered."""

from collections.abc import Iterator
from dataclasses import dataclass

from fleetrank.device_agents.android.state.phone_cores import Core


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClocks:
    """The cores during a repeat.

    Attributes:
        looks: in order; empty if no look succeeded.
        times_s: of the looks, since the program was started.
        registered_cap_mhz: the highest cap under load at registration; `None` if unknown.
    """

    looks: tuple[tuple[Core, ...], ...] = ()
    times_s: tuple[float, ...] = ()
    registered_cap_mhz: float | None = None

    @property
    def highest_cap_mhz(self) -> float | None:
        """The highest cap of all cores during the repeat."""
        caps = (core.cap_khz for cores in self.looks for core in cores)
        return max((khz / 1000 for khz in caps if khz is not None), default=None)

    @property
    def registered_share(self) -> float | None:
        """The highest cap as a share of the registered one."""
        highest_mhz = self.highest_cap_mhz
        if highest_mhz is None or self.registered_cap_mhz is None:
            return None
        return highest_mhz / self.registered_cap_mhz

    @property
    def lowest_fall(self) -> float | None:
        """The lowest cap of a core as a share of the highest that it had before."""
        known = (share for share in self._falls() if share is not None)
        return min(known, default=None)

    def fell_after_s(self, share: float) -> float | None:
        """When a cap was first seen below this share of its highest; `None` if it was not."""
        falls = zip(self.times_s, self._falls(), strict=True)
        return next((at for at, fall in falls if fall is not None and fall < share), None)

    def _falls(self) -> Iterator[float | None]:
        """For each look the lowest cap as a share of the highest so far."""
        highest: dict[int, int] = {}
        for cores in self.looks:
            capped = {core.number: core.cap_khz for core in cores if core.cap_khz is not None}
            for number, cap in capped.items():
                highest[number] = max(cap, highest.get(number, 0))
            yield min((cap / highest[number] for number, cap in capped.items()), default=None)


UNSEEN = RunClocks()
