"""Runs exports side by side as memory and cores allow, those of one format after one another."""

import queue
import threading
from collections.abc import Sequence
from time import sleep

import psutil

from fleetrank.foundation.lease import is_host_wanted
from fleetrank.models.cards.card import ExportRequest
from fleetrank.models.export.process import ExportChild, peak_memory_estimate_bytes, usable_cores
from fleetrank.orchestrator.one_export import ExportTools, Result, obtain
from fleetrank.orchestrator.progress_events import Notice, PhaseStarted
from fleetrank.orchestrator.progress_words import STOPPING

_POLL_S = 0.25
"""Longest sleep between two checks of the stop switch."""
_AWAY_S = 1.0
"""A repeat that waits for the host reports it every few seconds, and is out of the queue for half a
second then."""


def export_all(
    requests: Sequence[ExportRequest], tools: ExportTools
) -> tuple[dict[ExportRequest, Result], bool]:
    """The result of each request, and whether all were handled before a stop was requested.

    This process holds the host's lease meanwhile. If others wait for it, no further export starts,
    and they go first when the running ones have ended.
    """
    if requests:
        tools.emit(PhaseStarted(name="exporting", n_steps=len(requests)))
    lines = _Lines(requests, tools)
    results: dict[ExportRequest, Result] = {}
    try:
        while lines.has_work and not tools.switch.is_stopping:
            with tools.turn() as is_held:
                if is_held:
                    results |= _one_turn(lines)
            if lines.has_work and not tools.switch.is_stopping:
                sleep(_AWAY_S)
        return results, not lines.has_work
    finally:
        lines.end()


def _one_turn(lines: "_Lines") -> dict[ExportRequest, Result]:
    """The results until none is left, a stop was requested, or others want the host."""
    results: dict[ExportRequest, Result] = {}
    lines.begin_turn()
    while lines.start_what_fits():
        if (finished := lines.wait()) is not None:
            results |= finished
    return results


def may_start(
    estimate_bytes: int, running_bytes: Sequence[int], *, available_bytes: int, cores: int
) -> bool:
    """Whether one more export may start beside the running ones; the first one always may.

    A running export may still grow, so its whole estimate is reserved.
    """
    if not running_bytes:
        return True
    fits = sum(running_bytes) + estimate_bytes <= available_bytes
    return fits and len(running_bytes) < cores


class _Line(threading.Thread):
    """Exports one file after another in one child process.

    A daemon: an immediate stop does not wait for it, and its child ends too.

    Attributes:
        orders: the next request; `None` ends it.
    """

    def __init__(self, tools: ExportTools, done: "_Done") -> None:
        super().__init__(daemon=True)
        self.orders: queue.SimpleQueue[ExportRequest | None] = queue.SimpleQueue()
        self._tools, self._done = tools, done

    def run(self) -> None:
        """Puts a result into the queue for each order."""
        with ExportChild() as child:
            while (request := self.orders.get()) is not None:
                self._done.put((self, request, obtain(request, self._tools, child)))


_Done = queue.SimpleQueue[tuple[_Line, ExportRequest, Result]]


class _Lines:
    """The requests that wait, those that run, and the threads that handle them."""

    def __init__(self, requests: Sequence[ExportRequest], tools: ExportTools) -> None:
        self._tools = tools
        self._pending = list(requests)
        self._reserved_bytes: dict[ExportRequest, int] = {}
        self._lines: list[_Line] = []
        self._done: _Done = queue.SimpleQueue()
        self._is_closed = self._is_announced = False

    @property
    def is_busy(self) -> bool:
        return bool(self._reserved_bytes)

    @property
    def has_work(self) -> bool:
        return bool(self._pending) or self.is_busy

    def begin_turn(self) -> None:
        """Requests may start again."""
        self._is_closed = False

    def start_what_fits(self) -> bool:
        """Starts requests in their order, each in its own line; false if this turn is over."""
        if self._tools.switch.is_stopping and not self._is_announced:
            self._is_announced = True
            self._tools.emit(Notice(level="info", message=STOPPING))
        self._is_closed |= self._tools.switch.is_stopping
        while self._pending and self._order(None, self._pending[0], held_bytes=0):
            pass
        return self.is_busy and not self._tools.switch.is_now

    def wait(self) -> dict[ExportRequest, Result] | None:
        """The next result, or `None` after a moment; its line takes a request of its format.

        Looks whether others want the host: not before, so that each turn exports something.
        """
        try:
            line, finished, result = self._done.get(timeout=_POLL_S)
        except queue.Empty:
            return None
        finally:
            # It is kept, because a process that waits is out of the queue from time to time.
            self._is_closed |= is_host_wanted() or self._tools.switch.is_stopping
        held_bytes = self._reserved_bytes.pop(finished)
        follower = next((one for one in self._pending if one.format == finished.format), None)
        if follower is None or not self._order(line, follower, held_bytes):
            line.orders.put(None)
        return {finished: result}

    def end(self) -> None:
        """Lets each line end after what it does now."""
        for line in self._lines:
            line.orders.put(None)

    def _order(self, line: _Line | None, request: ExportRequest, held_bytes: int) -> bool:
        """Gives the request to the line, or to a new one; `False` if it must not start now.

        A process keeps a part of the memory that its largest export needed.
        """
        need_bytes = max(held_bytes, peak_memory_estimate_bytes(request))
        if self._is_closed or not may_start(
            need_bytes,
            tuple(self._reserved_bytes.values()),
            available_bytes=psutil.virtual_memory().available,
            cores=usable_cores(),
        ):
            return False
        self._pending.remove(request)
        self._reserved_bytes[request] = need_bytes
        if line is None:
            line = _Line(self._tools, self._done)
            self._lines.append(line)
            line.start()
        line.orders.put(request)
        return True
