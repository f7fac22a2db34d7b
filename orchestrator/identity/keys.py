"""Keys of platforms, cells and rows, equal on every host."""

import hashlib
import json
from collections.abc import Mapping
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
