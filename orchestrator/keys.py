"""Keys of platforms, cells and rows, equal on every host, and the ids of tasks."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.inputs import axes_text
from fleetrank.foundation.vocabulary import CpuChoice
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
        """The key in messages about one sweep; repeats and attempts count from 1."""
        return f"cell {self.cell_key}, repeat {self.repeat + 1}, attempt {self.attempt + 1}"


CELL_KEY_DIGITS = 16
"""64 bits: the probability of a collision among a million cells is 3e-8."""


def platform_key(device: str, execution: Execution) -> str:
    """Readable name of a platform: `device/runtime/backend/mode/precision/bN/tN/affinity/options`.

    Affinity is what the sweep asked for: `afirst_cores`, `afree` if the system decides, or CPU
    numbers as in `a0,1`, which a list and a phone's cluster have. First cores have other numbers
    under another CPU mask, so their numbers are a fact of the row. Options are sorted JSON. Sizes
    of named axes follow where a model has some: `/seq=128`. Versions are stored in rows and are
    not part of the name.
    """
    affinity = affinity_text(execution.affinity)
    if execution.cpu_choice is CpuChoice.FIRST_CORES:
        affinity = CpuChoice.FIRST_CORES.value
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
            "axes": axes_text(execution.axes),
        }
    )


def row_platform_key(row: Mapping[str, object]) -> str:
    """The same name from a row of the table; values missing in an imported row become `?`."""
    known = {name: "?" if value is None else str(value) for name, value in row.items()}
    named = (known[name] for name in ("device", "runtime", "backend", "mode", "precision"))
    affinity = "free" if row.get("affinity") is None else known["affinity"]
    numbers = (f"b{known['batch']}", f"t{known.get('threads', '?')}", f"a{affinity}")
    axes = () if row.get("axes") is None else (known["axes"],)
    return "/".join((*named, *numbers, known["options"], *axes))


def affinity_text(cpus: tuple[int, ...] | None) -> str | None:
    """CPU numbers as the table stores them: `0,1`; `None` where the system chooses."""
    return None if cpus is None else ",".join(map(str, cpus))


def canonical_json(value: object) -> str:
    """JSON that is equal for equal values: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def cell_key(request: ExportRequest, platform: str) -> str:
    """The key of a cell, computed before the export; `platform` is a `platform_key`.

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


_PROFILE = "profile"
_REPLICAS = "replicas"


def profiled_key(cell_key: str) -> str:
    """The key of the tasks that profile a cell; their names must differ from its measurements."""
    return f"{_PROFILE}-{cell_key}"


def replicated_key(cell_key: str, n_replicas: int) -> str:
    """The key of the tasks that run a cell in so many processes at once."""
    return f"{_REPLICAS}-{n_replicas}-{cell_key}"


def n_replicas_of(key: str) -> int:
    """The number of processes in a key of `replicated_key`."""
    return int(key.split("-")[1])


def cell_of_side_key(key: str) -> str:
    """The cell that a key of `profiled_key` or `replicated_key` is about."""
    return key.split("-", 2 if key.startswith(_REPLICAS) else 1)[-1]
