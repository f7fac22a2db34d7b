"""Writes the tags and the note of a sweep beside its record; no row and no other file changes."""

from collections.abc import Iterable

from pydantic import ValidationError

from fleetrank.analysis.stored.sweep_tags import SweepTags, read_tags, tags_path
from fleetrank.foundation.errors import BadFileError, reworded
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import write_checked_object


def new_tags(tags: Iterable[str] | None, note: str | None) -> SweepTags | None:
    """The tags of a new sweep, as a user gave them; `None` without tags and note.

    Raises:
        UsageError: a tag or the note is not valid.
    """
    return _checked_tag(tags or (), note) if tags or note else None


def _checked_tag(tags: Iterable[str], note: str | None) -> SweepTags:
    """The tags and the note of a user.

    Raises:
        UsageError: a tag or the note is not valid.
    """
    try:
        return SweepTags(tags=tuple(tags), note=note)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise UsageError(problem, "correct the tag or the note") from error


def write_tags(store: ResultStore, sweep_id: str, tags: SweepTags) -> None:
    """Replaces the tags and the note of a sweep, also while it runs.

    Raises:
        StoreError: the file cannot be written; nothing changed.
    """
    write_checked_object(tags_path(store.root, sweep_id), tags.model_dump(mode="json"))


def change_tags(
    store: ResultStore,
    sweep_id: str,
    *,
    added: Iterable[str] = (),
    removed: Iterable[str] = (),
    note: str | None = None,
) -> SweepTags:
    """Adds and removes tags and returns all; of two changes at the same moment one can be lost.

    Args:
        store: the results.
        sweep_id: the sweep.
        added: tags to add.
        removed: tags to remove.
        note: replaces the note; empty removes it, `None` keeps it.

    Raises:
        UsageError: the sweep does not exist, it lacks a removed tag, or a text is not valid.
        StoreError: the file is damaged or cannot be written; nothing changed.
    """
    store.check_sweep(sweep_id)
    with reworded(StoreError, BadFileError):
        known = read_tags(store.root, sweep_id)
    gone = set(removed)
    if unknown := sorted(gone - set(known.tags)):
        raise UsageError(
            f"sweep {sweep_id} has no tag '{unknown[0]}'",
            f"its tags: {', '.join(known.tags) or 'none'}",
        )
    kept = [tag for tag in known.tags if tag not in gone]
    changed = _checked_tag([*kept, *added], known.note if note is None else note)
    if changed != known:
        write_tags(store, sweep_id, changed)
    return changed
