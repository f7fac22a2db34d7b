"""Runs exports side by side as memory and cores allow, those of one format after one another."""

import queue
import threading
from collections.abc import Sequence

import psutil

from fleetrank.models.cards.card import ExportRequest
from fleetrank.models.export.process import (
    ExportChild,
    peak_memory_estimate_bytes,
    usable_cores,
)
from fleetrank.orchestrator.export.one_export import ExportTools, Result, obtain
from fleetrank.orchestrator.progress.events import Notice
from fleetrank.orchestrator.progress.wording import STOPPING

_POLL_S = 0.25
"""Longest sleep between two checks of the stop switch."""


def export_all(
    requests: Sequence[ExportRequest], tools: ExportTools
) -> tuple[dict[ExportRequest, Result], bool]:
    """The result of each request, and whether all were handled before a stop was requested."""
    lines = _Lines(requests, tools)
    results: dict[ExportRequest, Result] = {}
    is_announced = False
    try:
        while lines.has_work:
            if tools.switch.is_stopping and not is_announced:
                is_announced = True
                tools.emit(Notice(level="info", message=STOPPING))
            if tools.switch.is_now or (tools.switch.is_stopping and not lines.is_busy):
                return results, False
            if not tools.switch.is_stopping:
                lines.start_what_fits()
            if (finished := lines.wait()) is not None:
                results |= finished
        return results, True
    finally:
        lines.end()


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
        child = ExportChild()
        try:
            while (request := self.orders.get()) is not None:
                self._done.put((self, request, obtain(request, self._tools, child)))
        finally:
            child.end()


_Done = queue.SimpleQueue[tuple[_Line, ExportRequest, Result]]


class _Lines:
    """The requests that wait, those that run, and the threads that handle them."""

    def __init__(self, requests: Sequence[ExportRequest], tools: ExportTools) -> None:
        self._tools = tools
        self._pending = list(requests)
        self._reserved_bytes: dict[ExportRequest, int] = {}
        self._lines: list[_Line] = []
        self._done: _Done = queue.SimpleQueue()

    @property
    def is_busy(self) -> bool:
        return bool(self._reserved_bytes)

    @property
    def has_work(self) -> bool:
        return bool(self._pending) or self.is_busy

    def start_what_fits(self) -> None:
        """Starts requests in their order, each in its own line."""
        while self._pending and self._order(None, self._pending[0], held_bytes=0):
            pass

    def wait(self) -> dict[ExportRequest, Result] | None:
        """The next result, or `None` after a moment; its line takes a request of its format."""
        try:
            line, finished, result = self._done.get(timeout=_POLL_S)
        except queue.Empty:
            return None
        held_bytes = self._reserved_bytes.pop(finished)
        follower = next((one for one in self._pending if one.format == finished.format), None)
        is_stopping = self._tools.switch.is_stopping
        if follower is None or is_stopping or not self._order(line, follower, held_bytes):
            line.orders.put(None)
        return {finished: result}

    def end(self) -> None:
        """Lets each line end after what it does now."""
        for line in self._lines:
            line.orders.put(None)

    def _order(self, line: _Line | None, request: ExportRequest, held_bytes: int) -> bool:
        """Gives the request to the line, or to a new one; `False` if it does not fit yet.

        A process keeps a part of the memory that its largest export needed.
        """
        need_bytes = max(held_bytes, peak_memory_estimate_bytes(request))
        if not may_start(
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
