"""Keys of platforms, cells and rows, equal on every host, and the ids of tasks."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from fleetrank.device_agents.contract.task import Execution
from fleetrank.models.cards.card import ExportRequest


class RowKey(NamedTuple):
    """The key of a stored row; its fields are the columns `ROW_KEY`."""

    sweep_id: str
    cell_key: str
    repeat: int
    attempt: int

    @classmethod
    def of(cls, row: Mapping[str, object]) -> Self:
        """The key of a row.

        Raises:
            ValueError: the row is not one of the table.
        """
        key = (row.get("sweep_id"), row.get("cell_key"), row.get("repeat"), row.get("attempt"))
        match key:
            case (str(sweep_id), str(cell_key), int(repeat), int(attempt)):
                return cls(sweep_id, cell_key, repeat, attempt)
        raise ValueError(f"not the key of a row: {key}")

    @property
    def label(self) -> str:
        """The key in messages about one sweep."""
        return f"cell {self.cell_key}, repeat {self.repeat}, attempt {self.attempt}"


CELL_KEY_DIGITS = 16
"""64 bits: the probability of a collision among a million cells is 3e-8."""


def platform_key(device: str, execution: Execution) -> str:
    """Readable name of a platform: `device/runtime/backend/mode/precision/bN/tN/affinity/options`.

    Affinity is `a0,1`, or `afree` if the system decides; options are sorted JSON. Versions are
    stored in rows and are not part of the name.
    """
    affinity = None if execution.affinity is None else affinity_text(execution.affinity)
    return row_platform_key(
        {
            "device": device,
            "runtime": execution.runtime.value,
            "backend": execution.backend,
            "mode": execution.mode.value,
            "precision": execution.precision.value,
            "batch": execution.batch,
            "threads": execution.threads,
            "affinity": affinity,
            "options": canonical_json(dict(execution.options)),
        }
    )


def row_platform_key(row: Mapping[str, object]) -> str:
    """The same name from a row of the table; values missing in an imported row become `?`."""
    known = {name: "?" if value is None else str(value) for name, value in row.items()}
    named = (known[name] for name in ("device", "runtime", "backend", "mode", "precision"))
    affinity = "free" if row.get("affinity") is None else known["affinity"]
    numbers = (f"b{known['batch']}", f"t{known.get('threads', '?')}", f"a{affinity}")
    return "/".join((*named, *numbers, known["options"]))


def affinity_text(affinity: tuple[int, ...]) -> str:
    """CPU numbers as the table stores them: `0,1`."""
    return ",".join(str(cpu) for cpu in affinity)


def canonical_json(value: object) -> str:
    """JSON that is equal for equal values: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def cell_key(request: ExportRequest, platform: str) -> str:
    """The key of a cell, computed before the export.

    Covers the same as the artifact cache (model card, weights, every option and the recipe of the
    export) and the platform; a change of any of them gives another key. Versions of exporters and
    runtimes are stored in the row instead.
    """
    text = canonical_json([request.key, platform])
    return hashlib.sha256(text.encode()).hexdigest()[:CELL_KEY_DIGITS]


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
