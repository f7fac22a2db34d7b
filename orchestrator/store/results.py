"""The results folder: journals, Parquet parts and the record of each sweep."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.analysis.stored.part_list import (
    NO_SWEEP,
    is_pending,
    is_sweep_id,
    parts_folder,
    sweeps_here,
)
from fleetrank.analysis.stored.sweep_record import RECORD_VERSION, SweepRecord
from fleetrank.analysis.stored.sweep_tags import tags_path
from fleetrank.foundation.lease import holder, open_lease, sign, wait_for_lock
from fleetrank.foundation.wording import did_you_mean, with_flags
from fleetrank.orchestrator.errors import NewerSchemaError, NothingToDoError, StoreError, UsageError
from fleetrank.orchestrator.store.journal import Journal
from fleetrank.orchestrator.store.small_files import (
    locked,
    raw_folder,
    read_record_file,
    refuse_newer,
    write_checked_object,
)

_PATIENCE_S = 1.0
"""`sweep status` holds the lock very briefly; a driver holds it for the whole sweep."""


@contextmanager
def sweep_lease(path: Path) -> Iterator[None]:
    """Holds the lease while the block runs; the lease of a dead driver is free again.

    The lease is a lock on a file: the system frees it when its holder ends for any reason, so no
    stale lease exists.

    Raises:
        UsageError: another process holds the lease; the message names it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline_s = monotonic() + _PATIENCE_S
    with open_lease(path) as file:
        if not wait_for_lock(file, lambda: monotonic() >= deadline_s):
            raise UsageError(
                f"{path.stem} is being run by another process: {holder(file)}",
                "wait for it, or end that process and run `fleetrank sweep resume`",
            )
        if not path.exists():
            raise UsageError(
                f"{path.stem} was deleted meanwhile", "`fleetrank results list` lists the sweeps"
            )
        sign(file, f"sweep {path.stem}")
        yield


_log = logging.getLogger(__name__)


class ResultStore:
    """All results of one workspace. Opening the store writes nothing."""

    def __init__(self, root: Path) -> None:
        """Opens `<workspace>/results`; the folder need not exist yet.

        Raises:
            NewerSchemaError: the folder was written by a newer fleetrank.
        """
        self.root = root
        refuse_newer(root)

    def create_sweep(self, record: SweepRecord) -> None:
        """Stores the record of a new sweep, and the folder's schema mark.

        Raises:
            StoreError: the sweep exists already, or the disk is full.
        """
        path = self.record_path(record.sweep_id)
        if path.exists():
            raise StoreError(
                f"sweep {record.sweep_id} exists already", "resume it, or start a new sweep"
            )
        self.remove_unfinished()
        self.write_schema()
        # A process that holds the lease is alive: its files are not left over.
        with self.lease(record.sweep_id):
            write_checked_object(path, {"record_version": RECORD_VERSION, **record.as_json()})

    def remove_unfinished(self) -> list[str]:
        """Removes the first file of each sweep whose process was killed while it wrote that file.

        Such a sweep is not known to anybody else. Returns the ids.
        """
        found = []
        for path in (self.root / "sweeps").glob(".*.json.*.tmp"):
            sweep_id = path.name[1:].rpartition(".json.")[0]
            record = self.record_path(sweep_id) if is_sweep_id(sweep_id) else path
            if not (record.exists() or is_pending(self.root, sweep_id)):
                with suppress(UsageError), self.lease(sweep_id):
                    self.lease_path(sweep_id).unlink()
                    found.append(sweep_id)
        return found

    def write_schema(self) -> None:
        """Makes the folder's schema mark, unless it exists."""
        schema = self.root / "schema.json"
        if not schema.exists():
            with locked(self.root / "sweeps" / ".schema.lock"):
                for path in self.root.glob(".schema.json.*.tmp"):
                    path.unlink(missing_ok=True)  # a killed process left it
                write_checked_object(schema, {"schema_version": SCHEMA_VERSION})

    def check_sweep(self, sweep_id: str) -> None:
        """Raises if a sweep does not exist; the record of an existing sweep may be damaged.

        Raises:
            UsageError: the sweep does not exist; the remedy names the nearest id.
        """
        if sweep_id not in (known := self.sweep_ids()):
            raise UsageError(
                f"sweep '{sweep_id}' does not exist",
                did_you_mean(sweep_id, known, "`fleetrank results list` lists them"),
            )

    def sweep_record(self, sweep_id: str) -> SweepRecord:
        """Returns the record of a sweep.

        Raises:
            UsageError: the sweep does not exist; the remedy names the nearest id.
            NewerSchemaError: a newer fleetrank wrote the record.
            StoreError: its record is damaged.
        """
        path = self.record_path(sweep_id)
        if is_pending(self.root, sweep_id) or not path.exists():
            self.check_sweep(sweep_id)
        return read_record_file(path)

    def record_or_id(self, sweep_id: str) -> SweepRecord:
        """The record of a sweep, or only its id if the record is damaged: it hides no other sweep.

        Raises:
            NewerSchemaError: a newer fleetrank wrote the record.
        """
        try:
            return self.sweep_record(sweep_id)
        except NewerSchemaError:
            raise
        except (StoreError, UsageError) as error:
            _log.warning("%s (%s)", error.message, with_flags(error.remedy or ""))
            return SweepRecord(sweep_id=sweep_id)

    def update_record(self, sweep_id: str, changes: Mapping[str, object]) -> None:
        """Changes entries of a sweep's record; readers see the complete old or new record.

        Raises:
            ValueError: a change is not an entry of `SweepRecord`, or its value is not valid.
            StoreError: the disk is full, or the record is damaged; nothing changed.
        """
        if unknown := changes.keys() - SweepRecord.model_fields:
            raise ValueError(f"a record has no entries {sorted(unknown)}")
        entries = self.sweep_record(sweep_id).as_json() | dict(changes)
        write_checked_object(
            self.record_path(sweep_id), SweepRecord.model_validate(entries).as_json()
        )

    def sweep_ids(self) -> list[str]:
        """Returns all sweeps, oldest first, without those being removed or copied."""
        return sorted((one for one in sweeps_here(self.root) if one != NO_SWEEP), key=_age)

    def newest_sweep(self) -> str:
        """Returns the newest sweep; imported sweeps are left out, because they cannot be resumed.

        Raises:
            NothingToDoError: the workspace has no such sweep.
        """
        for sweep_id in reversed(self.sweep_ids()):
            if not self.sweep_record(sweep_id).is_imported:
                return sweep_id
        raise NothingToDoError(
            f"{self.root} holds no sweep", "run one: `fleetrank sweep run sweeps/NAME.yaml`"
        )

    def open_journal(self, sweep_id: str) -> Journal:
        """Returns the journal of a sweep; the file is made with the first row."""
        return Journal(self.root / "journal" / f"{_checked(sweep_id)}.jsonl")

    @contextmanager
    def lease(self, sweep_id: str) -> Iterator[None]:
        """Holds the lease of a sweep, so that no second driver runs it.

        What a killed writer left half-written is removed: no other process writes these files.
        """
        with sweep_lease(self.lease_path(sweep_id)):
            for place in self.files_of(sweep_id):
                for path in place.glob(".*.tmp") if place.is_dir() else [place]:
                    if path.name.startswith("."):
                        path.unlink(missing_ok=True)
            yield

    def files_of(self, sweep_id: str) -> tuple[Path, ...]:
        """Returns the files and folders of one sweep, without its lease; the record is last.

        Hidden files are left over from a writer that was killed.
        """
        name = re.escape(_checked(sweep_id))
        journal = re.compile(rf"{name}\.jsonl(\..+)?|\.{name}\.jsonl\..+\.tmp")
        small = re.compile(rf"\.{name}\.[a-z]+\.[0-9a-f-]+\.tmp|{name}\.parts(\.damaged.*)?")
        found = [
            *(p for p in (self.root / "journal").glob("*") if journal.fullmatch(p.name)),
            *(p for p in (self.root / "sweeps").glob("*") if small.fullmatch(p.name)),
            self.parts_folder(sweep_id),
            self.raw_folder(sweep_id),
            *sorted((self.root / "side").glob(f"*/sweep_id={sweep_id}")),
            self.progress_path(sweep_id),
            tags_path(self.root, sweep_id),
            self.record_path(sweep_id),
        ]
        return tuple(path for path in found if path.exists())

    def publish(self, sweep_id: str) -> int:
        """Writes the rows of the journal to Parquet; a second run changes nothing.

        Returns:
            How many parts were written.

        Raises:
            StoreError: the disk is full (the journal still has all rows), a part is damaged, or the
                journal is not the one that was published.
        """
        # Importing Polars takes 0.2 s, and status and help do not need it.
        from fleetrank.orchestrator.store.parts import publish

        return publish(self.root, self.open_journal(sweep_id))

    def history(self) -> dict[str, float]:
        """Returns by cell key the mean seconds of a valid repeat, over all sweeps."""
        from fleetrank.orchestrator.store.parts import repeat_seconds

        try:
            return repeat_seconds(self.root, self.sweep_ids())
        except StoreError as error:
            # A missing estimate must not prevent a sweep.
            _log.warning("no estimate from earlier sweeps: %s", error)
            return {}

    def parts_folder(self, sweep_id: str) -> Path:
        """Returns the folder of a sweep's Parquet parts."""
        return parts_folder(self.root, _checked(sweep_id))

    def raw_folder(self, sweep_id: str) -> Path:
        """Returns the folder with the output of tools during a sweep."""
        return raw_folder(self.root, _checked(sweep_id))

    def lease_path(self, sweep_id: str) -> Path:
        """The file that the driver of a sweep locks."""
        return self.root / "sweeps" / f"{_checked(sweep_id)}.lease"

    def progress_path(self, sweep_id: str) -> Path:
        """The file that says what each device of a running sweep does."""
        return self.root / "sweeps" / f"{_checked(sweep_id)}.progress"

    def record_path(self, sweep_id: str) -> Path:
        """The file of a sweep's record."""
        return self.root / "sweeps" / f"{_checked(sweep_id)}.json"


def _checked(sweep_id: str) -> str:
    """Checks an id from a user, because a path must not lead out of the folder."""
    if not is_sweep_id(sweep_id):
        raise UsageError(
            f"'{sweep_id}' is not the id of a sweep", "`fleetrank results list` lists them"
        )
    return sweep_id


def _age(sweep_id: str) -> tuple[str, str]:
    """Ids end in `-<UTC stamp>-<4 hex>`, and stamps sort as text."""
    return (sweep_id.split("-")[-2] if sweep_id.count("-") > 1 else "", sweep_id)
