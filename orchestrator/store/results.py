"""The results folder: journals, Parquet parts and the record of each sweep."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic

from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.analysis.stored.part_files import is_pending
from fleetrank.device_agents.host.file_lease import holder, open_lease, sign, wait_for_lock
from fleetrank.foundation.checksum import read_checked_object, with_checksum
from fleetrank.foundation.errors import BadFileError
from fleetrank.models.names import nearest
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NewerSchemaError, NothingToDoError, StoreError, UsageError
from fleetrank.orchestrator.store.journals.journal import Journal
from fleetrank.orchestrator.store.raw_logs import raw_folder

_PATIENCE_S = 1.0
"""`sweep status` holds the lock for an instant; a driver holds it for the whole sweep."""


@contextmanager
def sweep_lease(path: Path) -> Iterator[None]:
    """Holds the lease while the block runs; one left by a dead driver is taken over.

    A lock and not a file that merely exists: the system frees it however its holder ends, so that
    no stale one has to be told from a live one.

    Raises:
        UsageError: another live process holds it; names that process.
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

_SWEEP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
IMPORTED = "imported"
"""`origin` of the record of a sweep that nobody measured here."""
RESTORE_RECORD = (
    "restore it from a copy; if you changed it by hand, delete its entry 'checksum'. The rows of "
    "the sweep are stored in other files"
)
Record = dict[str, object]
"""What is known about a sweep as a whole; JSON values only."""


class ResultStore:
    """Everything measured in one workspace. Opening it writes nothing."""

    def __init__(self, root: Path) -> None:
        """Opens `<workspace>/results`, which need not exist yet.

        Raises:
            NewerSchemaError: the folder was written by a newer fleetrank.
        """
        self.root = root
        _refuse_newer(root / "schema.json")

    def create_sweep(self, sweep_id: str, record: Mapping[str, object]) -> None:
        """Makes the record of a new sweep, and the folder's schema mark.

        Raises:
            StoreError: there is such a sweep already, or the disk is full.
        """
        if self.record_path(sweep_id).exists():
            raise StoreError(f"there is a sweep {sweep_id} already", "resume it, or start anew")
        self.write_schema()
        _write_json(self.record_path(sweep_id), {"sweep_id": sweep_id, **record})

    def write_schema(self) -> None:
        """Makes the folder's schema mark, unless it is there."""
        schema = self.root / "schema.json"
        if not schema.exists():
            _write_json(schema, {"schema_version": SCHEMA_VERSION})

    def check_sweep(self, sweep_id: str) -> None:
        """Refuses the id of a sweep that is not there; its record may be damaged.

        Raises:
            UsageError: no such sweep; the remedy names the nearest.
        """
        if sweep_id not in (known := self.sweep_ids()):
            guess = nearest(sweep_id, known)
            raise UsageError(
                f"there is no sweep '{sweep_id}'",
                f"did you mean '{guess}'?" if guess else "`fleetrank results list` lists them",
            )

    def sweep_record(self, sweep_id: str) -> Record:
        """What was written about a sweep.

        Raises:
            UsageError: no such sweep; the remedy names the nearest.
            StoreError: its record is damaged.
        """
        path = self.record_path(sweep_id)
        if is_pending(self.root, sweep_id) or not path.exists():
            self.check_sweep(sweep_id)
        try:
            return read_checked_object(path)
        except BadFileError as error:
            raise StoreError(
                f"{path} is damaged: {error.message.removeprefix(f'{path} ')}", RESTORE_RECORD
            ) from error

    def update_record(self, sweep_id: str, changes: Mapping[str, object]) -> None:
        """Changes single entries of a sweep's record; readers see the old or the new one."""
        _write_json(self.record_path(sweep_id), {**self.sweep_record(sweep_id), **changes})

    def sweep_ids(self) -> list[str]:
        """All sweeps, oldest first; none that is being removed or copied."""
        ids = [
            path.stem
            for path in (self.root / "sweeps").glob("*.json")
            if not is_pending(self.root, path.stem)
        ]
        return sorted(ids, key=_age)

    def newest_sweep(self) -> str:
        """The sweep started last; what was imported is none that could go on.

        Raises:
            NothingToDoError: there is none.
        """
        for sweep_id in reversed(self.sweep_ids()):
            if self.sweep_record(sweep_id).get("origin") != IMPORTED:
                return sweep_id
        raise NothingToDoError(
            f"{self.root} holds no sweep", "run one: `fleetrank sweep run sweeps/NAME.yaml`"
        )

    def open_journal(self, sweep_id: str) -> Journal:
        """The journal of a sweep; the file is made with the first row."""
        return Journal(self.root / "journal" / f"{_checked(sweep_id)}.jsonl")

    def lease(self, sweep_id: str) -> AbstractContextManager[None]:
        """Keeps a second driver from running the same sweep."""
        return sweep_lease(self.lease_path(sweep_id))

    def files_of(self, sweep_id: str) -> tuple[Path, ...]:
        """Every file and folder that one sweep has, without its lease; the record comes last.

        Hidden ones are what a writer that was killed has left.
        """
        name = re.escape(_checked(sweep_id))
        journal = re.compile(rf"{name}\.(jsonl|parquet)(\..+)?")
        left_over = re.compile(rf"\.{name}\.[a-z]+\.[0-9a-f-]+\.tmp")
        found = [
            *(p for p in (self.root / "journal").glob("*") if journal.fullmatch(p.name)),
            *(p for p in (self.root / "sweeps").glob(".*.tmp") if left_over.fullmatch(p.name)),
            self.parts_folder(sweep_id),
            self.raw_folder(sweep_id),
            self.progress_path(sweep_id),
            self.record_path(sweep_id),
        ]
        return tuple(path for path in found if path.exists())

    def publish(self, sweep_id: str, start: int = 0) -> int:
        """Brings what the journal holds into Parquet; running it again changes nothing.

        Args:
            sweep_id: the sweep.
            start: the byte of the journal from which on nothing is published yet; what lies before
                it is not looked at. 0 compares every row.

        Returns:
            How many parts were written.

        Raises:
            StoreError: the disk is full (the journal still has everything), or a row is damaged.
        """
        # Polars takes 0.2 s to import, which status and help need not wait for.
        from fleetrank.orchestrator.store.parquet.parts import publish_parts

        rows = self.open_journal(sweep_id).rows(start)
        return publish_parts(self.parts_folder(sweep_id), rows, are_new=start > 0)

    def pack_journal(self, sweep_id: str) -> bool:
        """Packs the journal of a sweep that is published; the caller holds its lease.

        Returns:
            Whether it is packed now; `results verify` says why one that is worth it is not.

        Raises:
            StoreError: the disk is full; nothing is lost.
        """
        from fleetrank.orchestrator.store.journals.journal_pack import pack_journal

        return pack_journal(self.open_journal(sweep_id), self.parts_folder(sweep_id))

    def compact(self, sweep_id: str) -> int:
        """Merges a sweep's parts into one and returns how many there were."""
        from fleetrank.orchestrator.store.parquet.parts import compact_parts

        return compact_parts(self.parts_folder(sweep_id))

    def history(self) -> dict[str, float]:
        """Seconds one good repeat took on average, by cell key, over all sweeps."""
        from fleetrank.orchestrator.store.parquet.part_reader import repeat_seconds

        try:
            return repeat_seconds([self.parts_folder(sweep_id) for sweep_id in self.sweep_ids()])
        except StoreError as error:
            # An estimate is not worth refusing a sweep for.
            _log.warning("no estimate from earlier sweeps: %s", error)
            return {}

    def parts_folder(self, sweep_id: str) -> Path:
        """Where the Parquet parts of a sweep lie."""
        return self.root / "measurements" / f"sweep_id={_checked(sweep_id)}"

    def raw_folder(self, sweep_id: str) -> Path:
        """Where what tools printed during a sweep lies."""
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
    """An id typed by a person may not lead out of the folder."""
    if not _SWEEP_ID.fullmatch(sweep_id):
        raise UsageError(
            f"'{sweep_id}' is not the id of a sweep", "`fleetrank results list` lists them"
        )
    return sweep_id


def _age(sweep_id: str) -> tuple[str, str]:
    """Ids end in `-<UTC stamp>-<4 hex>`, and stamps sort as text."""
    return (sweep_id.split("-")[-2] if sweep_id.count("-") > 1 else "", sweep_id)


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    text = json.dumps(with_checksum(content), indent=2, ensure_ascii=False) + "\n"
    replace_file(path, text.encode())


def _refuse_newer(path: Path) -> None:
    if not path.exists():
        return
    problem = "it holds no schema_version"
    try:
        version = read_checked_object(path).get("schema_version")
    except BadFileError as error:
        version, problem = None, error.message.removeprefix(f"{path} ")
    if not isinstance(version, int):
        raise StoreError(
            f"{path} is damaged: {problem}", f'write {{"schema_version": {SCHEMA_VERSION}}} into it'
        )
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{path.parent} has schema version {version}; this fleetrank knows {SCHEMA_VERSION}",
            "use the newer fleetrank that wrote it, or another workspace",
        )
