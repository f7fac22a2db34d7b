"""The record of a sweep: `results/sweeps/SWEEP.json`, one file per sweep, written by its driver.

Beside it lie the tags that a person gave the sweep, in `SWEEP.tags`: they can change while the
driver rewrites the record.

This is the only definition of its entries. Entries that this version does not know are kept. Every
entry except the id may be missing, as in the record of an import.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.part_list import TAG_WORD, published_sweeps
from fleetrank.foundation.errors import BadFileError, MissingFileError
from fleetrank.foundation.plain_data import read_checked_object, read_json_object

RECORD_VERSION = 1
"""Increased when an entry is removed or changes its meaning; a newer version is an error."""
IMPORTED = "imported"
"""`origin` of the record of an imported sweep."""
_MAX_TAG, _MAX_TAGS, _MAX_NOTE = 40, 50, 500
"""Characters of a tag, tags of a sweep, characters of a note: lists and pages show all of them."""


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


def _checked_tag(tag: str) -> str:
    if not (0 < len(tag) <= _MAX_TAG and tag.isprintable()) or {" ", ",", ":"} & set(tag):
        raise ValueError(f"a tag has 1 to {_MAX_TAG} characters without space, comma and colon")
    return tag


def _checked_note(note: str | None) -> str | None:
    if note is not None and not (len(note) <= _MAX_NOTE and note.isprintable()):
        raise ValueError(f"a note is one line of at most {_MAX_NOTE} characters")
    return note or None


class SweepTags(BaseModel):
    """What a person says about a sweep.

    Attributes:
        tags: each once, sorted.
        note: one line; `None` without one.

    Raises:
        ValueError: a tag or the note is not valid.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tags: tuple[Annotated[str, AfterValidator(_checked_tag)], ...] = ()
    note: Annotated[str | None, AfterValidator(_checked_note)] = None

    @field_validator("tags")
    @classmethod
    def _sort(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if len(tags) > _MAX_TAGS:
            raise ValueError(f"a sweep has at most {_MAX_TAGS} tags")
        return tuple(sorted(set(tags)))


def tags_path(results: Path, sweep_id: str) -> Path:
    """The file with the tags of a sweep."""
    return results / "sweeps" / f"{sweep_id}.tags"


def read_tags(results: Path, sweep_id: str) -> SweepTags:
    """The tags of a sweep; empty without a file.

    Raises:
        BadFileError: the file is damaged.
    """
    path = tags_path(results, sweep_id)
    try:
        return SweepTags.model_validate(read_checked_object(path))
    except MissingFileError:
        return SweepTags()
    except ValidationError as error:
        raise BadFileError(f"{path} is damaged", "delete it, and tag the sweep again") from error


def shown_tags(results: Path, sweep_id: str) -> SweepTags:
    """The tags for display; a damaged file is a note that says so."""
    try:
        return read_tags(results, sweep_id)
    except BadFileError:
        return SweepTags(note="its file of tags is damaged")


def tagged_sweeps(results: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The ids that names mean: `tag:NAME` is every sweep with this tag that has measurements.

    Raises:
        NoDataError: no such sweep has a tag; the remedy lists the tags.
    """
    found = dict.fromkeys(name for name in names if not name.startswith(TAG_WORD))
    wanted = [name for name in names if name.startswith(TAG_WORD)]
    tags_of = _tags_of_sweeps(results) if wanted else {}
    for name in wanted:
        tag = name.removeprefix(TAG_WORD)
        ids = [sweep_id for sweep_id, tags in tags_of.items() if tag in tags]
        if not ids:
            known = sorted({one for tags in tags_of.values() for one in tags})
            raise NoDataError(
                f"no sweep with measurements has the tag '{tag}'",
                f"known tags: {', '.join(known)}"
                if known
                else "`fleetrank sweep status SWEEP` with `tag=NAME` sets one",
            )
        found |= dict.fromkeys(ids)
    return tuple(found)


def _tags_of_sweeps(results: Path) -> dict[str, tuple[str, ...]]:
    return {
        sweep_id: shown_tags(results, sweep_id).tags
        for sweep_id in published_sweeps(results)
        if tags_path(results, sweep_id).exists()
    }


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
