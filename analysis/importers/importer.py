"""The importers by the name of their source, and the user's files that they read.

To add one: write a module with an `Importer`, and add its line to `IMPORTERS`; the command
`fleetrank results import --from NAME` then offers it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import Release, require_complete
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.small_file import read_small_bytes

_MAX_FILE_BYTES = 64 << 20
"""Size limit against a wrong folder filling memory; the largest known table has 0.3 MB."""

Files = Mapping[str, bytes]
"""Relative name of a file to its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """How the tables of one source are read.

    Attributes:
        read: makes releases, oldest first, from the path that the user names and the content of
            the user's mapping, which is empty without one.
        needs_mapping: whether the columns of the source are known from the user's mapping only.
    """

    read: Callable[[Path, bytes], tuple[Release, ...]]
    needs_mapping: bool = False


IMPORTERS: Registry[Importer] = Registry(
    "source",
    {
        "timm": "fleetrank.analysis.importers.timm:IMPORTER",
        "qai-hub": "fleetrank.analysis.importers.qai_hub:IMPORTER",
        "csv": "fleetrank.analysis.importers.csv_map:IMPORTER",
        "executorch-llm": "fleetrank.analysis.importers.llm_log:IMPORTER",
    },
)


def read_releases(source: str, path: Path, mapping: Path | None) -> tuple[Release, ...]:
    """Reads the published tables at `path`, a folder or a file, as one source writes them.

    Raises:
        UnknownNameError: no importer has this name.
        BadFileError: the path cannot hold tables of this source.
        AnalysisError: a table is not valid, a mapping is missing or not used, or the importer
            made an incomplete row.
    """
    importer = IMPORTERS.load(source)
    if importer.needs_mapping and mapping is None:
        raise AnalysisError(
            f"source '{source}' needs a mapping of its columns",
            "write a mapping.toml and name it with `map=`",
        )
    if mapping is not None and not importer.needs_mapping:
        raise AnalysisError(f"source '{source}' has no use for a mapping", "leave out `map=`")
    releases = importer.read(path, b"" if mapping is None else read_table(mapping))
    for release in releases:
        require_complete(release)
    return releases


def read_tables(folder: Path, *patterns: str) -> Files:
    """Reads every file of a folder that fits one of the patterns.

    Raises:
        BadFileError: the folder does not exist, or a file cannot be a table.
    """
    if not folder.is_dir():
        raise BadFileError(f"{folder} is not a folder", "name the folder that holds the tables")
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix(): read_table(path) for path in paths}


def read_table(path: Path) -> bytes:
    """The content of a published table.

    Raises:
        BadFileError: the file is unreadable or too large.
    """
    return read_small_bytes(path, _MAX_FILE_BYTES)
