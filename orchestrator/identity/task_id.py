"""The id of a task: the key of its row as text, which hosts and spools keep."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskId:
    """Names one attempt; as text `sweep/cell/repeat/attempt`, then `/taker` if there is one.

    Attributes:
        repeat: 0-based.
        attempt: 0-based over the whole life of the sweep.
        taker: the device that measures in place of the cell's own; `None` for its own device.
    """

    sweep_id: str
    cell_key: str
    repeat: int
    attempt: int
    taker: str | None = None

    def __str__(self) -> str:
        """The form on the wire and in spools."""
        key = f"{self.sweep_id}/{self.cell_key}/{self.repeat}/{self.attempt}"
        return key if self.taker is None else f"{key}/{self.taker}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Reads the output of `str`; `None` if the text is not a task id."""
        match text.split("/"):
            case [sweep_id, cell_key, repeat, attempt, *takers] if len(takers) <= 1:
                pass
            case _:
                return None
        if not (repeat.isdecimal() and attempt.isdecimal()):
            return None
        found = cls(
            sweep_id=sweep_id,
            cell_key=cell_key,
            repeat=int(repeat),
            attempt=int(attempt),
            taker=takers[0] if takers else None,
        )
        return found if str(found) == text else None


def sweep_of(task_id: str) -> str:
    """Returns the sweep of a task; hosts ask this for each task, so nothing else is parsed."""
    return task_id.partition("/")[0]
