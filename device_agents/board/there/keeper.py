"""Runs one repeat on a board: the lock, the worker, the state before and after, the result.

The worker ends when the connection ends. If the line is cut so that neither side notices, it
measures to its end; the result is kept here until it is fetched and acknowledged.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from fleetrank.device_agents.board.there.board_store import BoardStore
from fleetrank.device_agents.board.there.line import POLL_S, Line
from fleetrank.device_agents.board.there.readings import (
    THROTTLED,
    Readings,
    read_boot,
    read_state_text,
    run_program,
)
from fleetrank.device_agents.contract.agent import Agent, RoundAgent
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.protocol import decode_request
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.device_output import parse_throttled
from fleetrank.foundation.codec import to_plain
from fleetrank.foundation.lease import holder, is_locked, open_lease, sign, wait_for_lock
from fleetrank.foundation.vocabulary import ErrorKind

ACKNOWLEDGE_S = 60.0
"""A host that does not acknowledge within this time has lost the line."""
_FIRMWARE_POLL_S = 2.0
"""Between two questions to the firmware while a model is timed; each takes some milliseconds."""


class BoardWork(NamedTuple):
    """What to measure.

    Attributes:
        agent: of this board.
        requests: a `MeasureTask` each as `contract.protocol` writes it, with paths on this board;
            several form a round.
    """

    agent: Agent
    requests: Sequence[str]


def measure(
    store: BoardStore, work: BoardWork, purpose: str, wait_s: float, line: Line
) -> str | None:
    """Measures one repeat of each task, and keeps the results until `acknowledged`.

    Args:
        store: of this board.
        work: the tasks, and the agent that measures them.
        purpose: shown to another host that waits for the board.
        wait_s: how long to wait while another host measures on it.
        line: to the host.

    Returns:
        The reply, or `None` if the connection ended first.
    """
    tasks = [_task(request) for request in work.requests]
    with board_lock(store.folder, purpose, wait_s, line) as other:
        if other is not None:
            return None if line.is_gone() else json.dumps({"busy": other})
        if (kept := store.kept(tasks[0].task_id)) is not None:
            return kept
        before = read_state_text()
        with _watched(before) as polled:
            found = _measure(work.agent, tasks, line)
        states = {"before": before, "polled": list(polled), "after": read_state_text()}
        reply = json.dumps({"measurements": [to_plain(one) for one in found], "state": states})
        if not any(map(_is_void, found)):
            store.keep(tasks[0].task_id, reply)
        elif line.is_gone():
            return None
        return reply


def fetch(store: BoardStore, task_id: str, wait_s: float, line: Line) -> str:
    """The kept result of a task; waits while a repeat runs, because it may be the task's."""
    deadline_s = monotonic() + wait_s
    while True:
        is_running = is_locked(_lock_path(store.folder))
        kept = store.kept(task_id)
        if kept is not None:
            return kept
        if not is_running or line.is_gone() or monotonic() >= deadline_s:
            return json.dumps({"none": True, "boot": read_boot()})
        sleep(POLL_S)


@contextmanager
def board_lock(folder: Path, purpose: str, wait_s: float, line: Line) -> Iterator[str | None]:
    """Holds the board for the block; yields who has it if the wait was in vain."""
    deadline_s = monotonic() + wait_s
    with open_lease(_lock_path(folder)) as file:
        if wait_for_lock(file, lambda: line.is_gone() or monotonic() >= deadline_s):
            sign(file, purpose)
            yield None
        else:
            yield holder(file)


def _lock_path(folder: Path) -> Path:
    return folder / "board.lock"


def _task(request: str) -> MeasureTask:
    task = decode_request(request)
    if not isinstance(task, MeasureTask):
        raise TypeError("the request is not a measurement")
    return task


def _measure(agent: Agent, tasks: Sequence[MeasureTask], line: Line) -> Sequence[Measurement]:
    if tasks[0].blocks is not None and isinstance(agent, RoundAgent):
        return agent.measure_round(tasks, line.is_gone, line.wants_finish)
    return [agent.measure(task, line.is_gone) for task in tasks]


def _is_void(found: Measurement) -> bool:
    """Whether nothing was measured: it was stopped, or the board was not fit."""
    failure = found.failure
    is_stopped = failure is not None and failure.kind is ErrorKind.INTERRUPTED
    return is_stopped or (failure is not None and failure.wait is not None)


@contextmanager
def _watched(before: Readings) -> Iterator[list[str]]:
    """Asks a Raspberry Pi's firmware while the block runs, if only that shows a new problem.

    Its bits `since boot` show any problem of the block unless they were set before it.
    """
    seen: list[str] = []
    bits = parse_throttled(before.get(" ".join(THROTTLED), ""))
    if bits is None or not bits.since_boot:
        yield seen
        return
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(_FIRMWARE_POLL_S):
            seen.append(run_program(THROTTLED))

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()
