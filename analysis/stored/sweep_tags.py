"""The tags and the note of a sweep: `results/sweeps/SWEEP.tags`, which a person can change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, field_validator

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.part_list import TAG_WORD, published_sweeps
from fleetrank.foundation.checksums import read_checked_object
from fleetrank.foundation.errors import BadFileError, MissingFileError

_MAX_TAG, _MAX_TAGS, _MAX_NOTE = 40, 50, 500
"""Characters of a tag, tags of a sweep, characters of a note: lists and pages show all of them."""


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
