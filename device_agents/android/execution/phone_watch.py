"""Looks at a phone again and again while a program runs, from a thread of this host."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from types import TracebackType
from typing import Generic, Self, TypeVar

from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.units import NS_PER_S

LOOK_TIMEOUT_S = 5.0
_JOIN_S = 6.0
Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[Seen]):
    """What one look saw; times of this host, in the middle of the look and at its end."""

    middle_ns: int
    end_ns: int
    seen: Seen


class PhoneWatch(Generic[Seen]):
    """Looks at regular times inside its `with` block; a look that fails is left out.

    If the phone is lost, the program's own connection reports it.
    """

    def __init__(
        self, look: Callable[[StopRequested], Seen], *, first_s: float, every_s: float
    ) -> None:
        """`first_s` is the time until the first look, `every_s` the time between two."""
        self._look = look
        self._first_s, self._every_s = first_s, every_s
        self._taken: list[Look[Seen]] = []
        self._is_over = threading.Event()
        self.began_ns = self.ended_ns = 0
        self._thread = threading.Thread(target=self._watch, name="phone-watch", daemon=True)

    def __enter__(self) -> Self:
        """Starts the looks."""
        self.began_ns = perf_counter_ns()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the looks."""
        self.ended_ns = perf_counter_ns()
        self._is_over.set()
        # The next command on the phone must not run beside a look.
        self._thread.join(_JOIN_S)

    def taken(self, *, last_s: float | None = None) -> tuple[Look[Seen], ...]:
        """The looks in order: all, or those that ended at least `last_s` before the block."""
        if last_s is None:
            return tuple(self._taken)
        last_ns = self.ended_ns - int(last_s * NS_PER_S)
        return tuple(look for look in self._taken if look.end_ns <= last_ns)

    def _watch(self) -> None:
        pause_s = self._first_s
        while not self._is_over.wait(pause_s):
            pause_s = self._every_s
            begin_ns = perf_counter_ns()
            try:
                seen = self._look(self._is_over.is_set)
            except FleetError:
                continue
            end_ns = perf_counter_ns()
            self._taken.append(Look(middle_ns=(begin_ns + end_ns) // 2, end_ns=end_ns, seen=seen))
