"""The record of a sweep: `results/sweeps/SWEEP.json`, one file per sweep, written by its driver.

Beside it lie the tags that a person gave the sweep, in `SWEEP.tags`: they can change while the
driver rewrites the record.

This is the only definition of its entries. Entries that this version does not know are kept. Every
entry except the id may be missing, as in the record of an import.
"""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import read_json_object

RECORD_VERSION = 1
"""Increased when an entry is removed or changes its meaning; a newer version is an error."""
IMPORTED = "imported"
"""`origin` of the record of an imported sweep."""


class SweepState(StrEnum):
    """The state of a sweep, as its driver wrote it last."""

    RUNNING = "running"
    """If no process holds the sweep's lease, its driver died."""
    FINISHED = "finished"
    STOPPED = "stopped"
    """The run ended regularly, but an abandoned device left repeats undone."""
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    IMPORTING = "importing"
    """Published rows are being stored."""


def _checked_stamp(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _joined(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value


Stamp = Annotated[str, AfterValidator(_checked_stamp)]
"""A time in UTC as ISO 8601 text."""
Count = Annotated[int, Field(ge=0)]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class RecordedPlan(_Part):
    """The size of the plan, and hashes that a resume compares with its own plan."""

    n_cells: Count
    repeats: Count
    cells_by_device: dict[str, Count] = {}
    models: list[str] = []
    platforms: list[str] = []
    sha256: dict[str, _Sha256] = {}


class RecordedSkip(_Part):
    """A cell that the plan skipped."""

    label: str
    reason: str


class Provenance(_Part):
    """Command line, versions, commit and host of the driver; `host` is a hash."""

    command_line: Annotated[str | None, BeforeValidator(_joined)] = None
    python_version: str | None = None
    versions: dict[str, str] = {}
    git_commit: str | None = None
    host: str | None = None


class SweepRecord(Provenance):
    """The record of one sweep.

    Attributes:
        run_started_utc: start of the newest run; a resume sets it.
        n_ok: repeats with a valid measurement at the end of the newest run, as the other counts.
        spec: the specification as JSON values; `SweepSpec` reads it.
        only: the pattern that restricted the plan.
        fleet: the hosts that the sweep was planned for, as JSON values; `Fleet` reads it.
        refused: platform key to the reason why the CPU of another host does not support it.
        content_sha256: of an imported release, so that it is stored only once.
        n_rows: of an imported release: its rows.
        dropped: of an imported release: rows that no figure uses, by reason.
    """

    record_version: Annotated[int, Field(ge=1)] = RECORD_VERSION
    sweep_id: str
    state: Annotated[SweepState, Field(strict=False)] | None = None
    origin: str | None = None
    started_utc: Stamp | None = None
    run_started_utc: Stamp | None = None
    finished_utc: Stamp | None = None
    n_ok: Count | None = None
    n_failed: Count | None = None
    n_left: Count | None = None
    spec_path: str | None = None
    spec_text: str | None = None
    spec: dict[str, object] | None = None
    only: str | None = None
    fleet: dict[str, object] | None = None
    refused: dict[str, str] = {}
    plan: RecordedPlan | None = None
    skipped: list[RecordedSkip] = []
    source: str | None = None
    release: str | None = None
    licence: str | None = None
    content_sha256: str | None = None
    files: list[str] = []
    n_rows: Count | None = None
    dropped: dict[str, Count] = {}
    aliases: dict[str, str] = {}
    notes: list[str] = []

    @property
    def is_imported(self) -> bool:
        """Whether the rows are published measurements, which cannot be resumed."""
        return self.origin == IMPORTED

    @property
    def counts(self) -> tuple[int, int, int] | None:
        """Valid, failed and pending repeats at the end of a run; `None` if no run has ended."""
        if self.n_ok is None or self.n_failed is None or self.n_left is None:
            return None
        return self.n_ok, self.n_failed, self.n_left

    def as_json(self) -> dict[str, object]:
        """The entries to store: those that were given, known or not."""
        return {"sweep_id": self.sweep_id, **self.model_dump(mode="json", exclude_unset=True)}


def stamp_now() -> str:
    """The time rounded to whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_problems(error: ValidationError, *place: str) -> list[str]:
    """The problems of a record, one text per entry; `place` leads to the part with the error."""
    return [
        f"its entry '{'.'.join(str(part) for part in (*place, *one['loc']))}': {one['msg']}"
        for one in error.errors(include_url=False, include_context=False)
    ]


def read_record(path: Path) -> SweepRecord:
    """Reads a record for display; it has only its id if the file is missing or damaged."""
    try:
        return SweepRecord.model_validate(read_json_object(path) | {"sweep_id": path.stem})
    except (BadFileError, ValidationError):
        return SweepRecord(sweep_id=path.stem)
