"""Gathers the tasks of a round, which arrive one by one on a thread each."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import MeasureTask

GATHER_S = 60.0
"""A round starts without a task that has not come by then: its driver died, or its file is lost."""

MeasureTogether = Callable[[Sequence[MeasureTask]], Sequence[Measurement]]
"""Measures tasks; one measurement per task, in their order."""


@dataclass(slots=True)
class _Round:
    """Tasks that wait for each other, and their answers."""

    tasks: dict[str, MeasureTask] = field(default_factory=dict)
    is_complete: threading.Event = field(default_factory=threading.Event)
    answers: dict[str, Measurement] = field(default_factory=dict)
    error: Exception | None = None
    is_over: threading.Event = field(default_factory=threading.Event)


class Rounds:
    """The rounds of one host. Safe to use from any thread."""

    def __init__(self, gather_s: float = GATHER_S) -> None:
        self._gather_s = gather_s
        self._open: dict[tuple[str, ...], _Round] = {}
        self._lock = threading.Lock()

    def measure(self, task: MeasureTask, together: MeasureTogether) -> Measurement:
        """Returns the measurement of one task of a round; blocks until the round is over.

        The thread that comes first waits for the others and measures all tasks; workers end with
        the thread that starts them. An error of it is an error of every task.
        """
        if len(task.members) < 2:
            return together([task])[0]
        with self._lock:
            found = self._open.setdefault(task.members, _Round())
            is_first = not found.tasks
            found.tasks[task.task_id] = task
            if len(found.tasks) == len(task.members):
                found.is_complete.set()
        if is_first:
            self._lead(task.members, found, together)
        found.is_over.wait()
        if found.error is not None:
            raise found.error
        return found.answers[task.task_id]

    def _lead(self, members: tuple[str, ...], found: _Round, together: MeasureTogether) -> None:
        found.is_complete.wait(self._gather_s)
        with self._lock:
            del self._open[members]
        tasks = [found.tasks[task_id] for task_id in members if task_id in found.tasks]
        try:
            answers = together(tasks)
            found.answers = {answer.task_id: answer for answer in answers}
        except Exception as error:
            found.error = error
        finally:
            found.is_over.set()
