"""The small JSON files of the results folder: records of sweeps and the schema mark."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.analysis.stored.load import schema_version
from fleetrank.analysis.stored.sweep_record import RECORD_VERSION, SweepRecord, record_problems
from fleetrank.foundation.checksum import read_checked_object, with_checksum
from fleetrank.foundation.errors import BadFileError
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NewerSchemaError, StoreError

RESTORE_RECORD = (
    "restore it from a copy; if you changed it by hand, delete its entry 'checksum'. The rows of "
    "the sweep are stored in other files"
)


def read_record_file(path: Path) -> SweepRecord:
    """Reads and checks the record of the sweep that the file is named after.

    Raises:
        NewerSchemaError: a newer fleetrank wrote the record.
        StoreError: its checksum or an entry is wrong; the message names the entry.
    """
    try:
        return _record_of(path, read_checked_object(path))
    except BadFileError as error:
        raise StoreError(
            f"{path} is damaged: {error.message.removeprefix(f'{path} ')}", RESTORE_RECORD
        ) from error
    except ValidationError as error:
        raise StoreError(
            f"{path} is damaged: {'; '.join(record_problems(error))}", RESTORE_RECORD
        ) from error


def _record_of(path: Path, entries: Mapping[str, object]) -> SweepRecord:
    version = entries.get("record_version")
    if isinstance(version, int) and version > RECORD_VERSION:
        raise NewerSchemaError(
            f"{path} has record version {version}; this fleetrank knows {RECORD_VERSION}",
            "use the newer fleetrank that wrote it",
        )
    record = SweepRecord.model_validate({"sweep_id": path.stem, **entries})
    if record.sweep_id != path.stem:
        raise StoreError(
            f"{path} is damaged: its entry 'sweep_id' is {record.sweep_id!r}", RESTORE_RECORD
        )
    return record


def write_checked_object(path: Path, content: Mapping[str, object]) -> None:
    """Writes a JSON object with its checksum; readers see the complete old or new file.

    Raises:
        StoreError: the disk is full or the folder cannot be written; nothing changed.
    """
    text = json.dumps(with_checksum(content), indent=2, ensure_ascii=False) + "\n"
    replace_file(path, text.encode())


def refuse_newer(root: Path) -> None:
    """Checks the schema mark of a results folder; a folder without one is new.

    Raises:
        NewerSchemaError: a newer fleetrank wrote the folder.
        StoreError: the mark is damaged.
    """
    try:
        version = schema_version(root)
    except BadFileError as error:
        raise StoreError(error.message, error.remedy) from error
    if version is not None and version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{root} has schema version {version}; this fleetrank knows {SCHEMA_VERSION}",
            "use the newer fleetrank that wrote it, or another workspace",
        )
