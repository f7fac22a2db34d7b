"""Stores the output of external tools, so that a better parser can read it again."""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path

from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.identity.keys import RowKey
from fleetrank.orchestrator.rows.measured_columns import Row

_FOLDER = "raw"
MAX_LOG_BYTES = 16 * 1024 * 1024
"""Maximum size of one unpacked log; ten thousand iterations take 0.5 MB."""


def raw_folder(results: Path, sweep_id: str) -> Path:
    """Returns the folder of the logs of one sweep."""
    return results / _FOLDER / sweep_id


def set_aside(results: Path, row: Row) -> Row:
    """Moves a row's tool output into a separate file; the row keeps the file's name.

    The name is made from the row's key. A row without output is returned unchanged. The file is not
    synced yet.

    Raises:
        StoreError: the disk is full.
    """
    text = row["raw_log"]
    if not isinstance(text, str):
        return row
    key = RowKey.of(row)
    file = f"{key.cell_key}-{key.repeat}-{key.attempt}.log.gz"
    name = Path(_FOLDER) / key.sweep_id / file
    # Without a time stamp equal logs are equal files.
    content = gzip.compress(text.encode("utf-8", "replace"), mtime=0)
    replace_file(results / name, content, is_synced=False)
    return {**row, "raw_log": str(name)}


def read_log(results: Path, row: Mapping[str, object]) -> str | None:
    """Returns the tool output of a stored row; `None` if the row has no output.

    Raises:
        StoreError: the file is missing or damaged.
        UsageError: the row names a file outside the results folder.
    """
    name = row["raw_log"]
    if not isinstance(name, str):
        return None
    folder = (results / _FOLDER).resolve()
    path = (results / name).resolve()
    if not path.is_relative_to(folder):
        raise UsageError(f"a row names the log {name!r}", f"logs lie in {folder}")
    try:
        with gzip.open(path) as file:
            return file.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(
            f"{path} cannot be read: {error}", "restore it; the row is not damaged"
        ) from error
