"""Reading beside measurements: no measurement waits for it, and rows measured beside it say so.

Reading does not take the host's lease. `reading_beside_measurements` announces it, and makes it
wait for measurements at its start and between its steps. They learn of it by `ReadingWatch`.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic, sleep
from typing import IO

from fleetrank.foundation.lease import (
    HOST_LEASE,
    PAUSE_S,
    LeaseError,
    give_up_at_once,
    holder,
    is_host_measured,
    open_lease,
    patience,
    runtime_folder,
    say_nothing,
    wait_for_lock,
)

LONGEST_READING_WAIT_S = 5.0
"""Of a reading command, all its waits together: longer, and a user thinks that it hangs."""
_READING = "host.reading"


def _no_pause() -> None:
    """Work that is not reading has no pauses."""


_pause: ContextVar[Callable[[], None]] = ContextVar("_pause", default=_no_pause)
_step = ""


def current_step() -> str:
    """What this process does, for a person who waits; empty if it has not said it."""
    return _step


def pause_between_steps(step: str = "") -> None:
    """Called before a step of reading: waits while a measurement runs on this host.

    Does not wait outside `reading_beside_measurements`, and after its limit.
    """
    global _step  # noqa: PLW0603 - another thread reads it, without this context
    _step = step
    _pause.get()()


@contextmanager
def reading_beside_measurements(
    *, limit_s: float = LONGEST_READING_WAIT_S, say: Callable[[str], None] = say_nothing
) -> Iterator[None]:
    """Announces the block's work to measurements on this host; no measurement waits for it.

    The work waits itself: at its start and in each `pause_between_steps`, until the host is free.
    After the limit it goes on beside the measurement, whose row gets a flag.

    Args:
        limit_s: for all waits of the block together; 0 does not wait.
        say: is given what a long wait is for, and that the work goes on after the limit.
    """
    try:
        folder = runtime_folder()
    except LeaseError:
        yield  # no measurement can take its lease there either
        return
    with open_lease(folder / _READING) as mark:
        left_s = limit_s

        def pause() -> None:
            nonlocal left_s
            if left_s > 0 and is_host_measured():
                fcntl.flock(mark, fcntl.LOCK_UN)
                left_s -= _wait_for_free_host(left_s, say)
                _announce(mark)

        pause()
        _announce(mark)
        token = _pause.set(pause)
        try:
            yield
        finally:
            _pause.reset(token)


def time_had_s(wall_s: float, cpu_s: float) -> float:
    """What a time limit of reading counts: wall clock while it gets half a core or more.

    Reading has the lowest priority, so a busy host may give it a hundredth of a core for minutes.
    A tenth of the wall clock counts in any case, so that a job that hangs ends.
    """
    return max(wall_s / 10, min(wall_s, 2 * cpu_s))


def clock_of_reading(cpu_s: Callable[[], float]) -> Callable[[], float]:
    """Starts a clock of `time_had_s`; `cpu_s` gives the processor time of who reads."""
    since_s, used_s = monotonic(), cpu_s()
    return lambda: time_had_s(monotonic() - since_s, cpu_s() - used_s)


def _wait_for_free_host(limit_s: float, say: Callable[[str], None]) -> float:
    """Waits until no process holds the lease alone; returns the seconds."""
    since_s = monotonic()
    is_over = False

    def end() -> bool:
        nonlocal is_over
        is_over = monotonic() - since_s >= limit_s
        return is_over

    with open_lease(runtime_folder() / HOST_LEASE) as lease:
        ends = patience(lease, limit_s, say, end)
        while is_host_measured() and not ends():
            sleep(PAUSE_S)
        if is_over:
            say(
                f"not waiting any longer for {holder(lease)}; what it measures meanwhile gets the "
                "flag beside_reading"
            )
    return monotonic() - since_s


def _announce(mark: IO[str]) -> None:
    """Marks the file as in use, and as changed for a `ReadingWatch` that comes too late."""
    fcntl.flock(mark, fcntl.LOCK_SH)
    changed_ns = os.fstat(mark.fileno()).st_mtime_ns + 1
    os.utime(mark.fileno(), ns=(changed_ns, changed_ns))


class ReadingWatch:
    """Notices reading on this host; made by who holds the host's lease alone, so there is one."""

    def __init__(self) -> None:
        """Begins to watch."""
        with open_lease(runtime_folder() / _READING) as mark:
            # Before the lock: reading that begins in between is noticed twice, not missed.
            self._changed_ns = os.fstat(mark.fileno()).st_mtime_ns
            self._was_there = not wait_for_lock(mark, give_up_at_once)

    def has_seen(self) -> bool:
        """Whether anything was read since it began to watch."""
        with open_lease(runtime_folder() / _READING) as mark:
            return self._was_there or os.fstat(mark.fileno()).st_mtime_ns != self._changed_ns
