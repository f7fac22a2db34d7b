"""The contract of an importer, the table of the importers, and the user's files that they read.

One of fleetrank's is a module with an `Importer`, and its line in `IMPORTERS`; a package gives its
`Importer` to `fleetrank.importers`. The command `fleetrank results import --from NAME` offers it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import Release, require_complete
from fleetrank.foundation.entry_points import Outside
from fleetrank.foundation.errors import BadFileError, failing_as
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
        needs_path: whether the tables are the user's; those of the demo are in the package.
    """

    read: Callable[[Path, bytes], tuple[Release, ...]]
    needs_mapping: bool = False
    needs_path: bool = True


def why_no_importer(member: object) -> str | None:
    """What an object lacks of `Importer`, or `None`."""
    if not isinstance(member, Importer):
        return f"it is {type(member).__name__}, not an `Importer`"
    return None if callable(member.read) else "its 'read' cannot be called"


_HERE = "fleetrank.analysis.importers"
_OWN = {
    "timm": f"{_HERE}.timm:IMPORTER",
    "qai-hub": f"{_HERE}.qai_hub:IMPORTER",
    "csv": f"{_HERE}.csv_map:IMPORTER",
    "llama-bench": f"{_HERE}.llama_bench:IMPORTER",
    "edge-compat": f"{_HERE}.csv_map:EDGE_COMPAT",
    "demo": f"{_HERE}.csv_map:DEMO",
}
OUTSIDE_IMPORTERS: Outside[Importer] = Outside(
    "source", "fleetrank.importers", (*_OWN, "workspace"), why_no_importer
)
IMPORTERS: Registry[Importer] = Registry("source", _OWN, OUTSIDE_IMPORTERS)


def read_releases(source: str, path: Path | None, mapping: Path | None) -> tuple[Release, ...]:
    """Reads the published tables at `path`, a folder or a file, as one source writes them.

    The tables of `demo` are part of the package: it has no path.

    Raises:
        UnknownNameError: no importer has this name.
        BadFileError: the path cannot hold tables of this source.
        AnalysisError: a table is not valid, the path or a mapping is missing or not used, or the
            importer made an incomplete row.
    """
    importer = IMPORTERS.load(source)
    if importer.needs_path is not (path is not None):
        lacks = "needs the path of its tables" if importer.needs_path else "has no path"
        remedy = "name the folder or the file" if importer.needs_path else "leave out the path"
        raise AnalysisError(f"source '{source}' {lacks}", remedy)
    if importer.needs_mapping and mapping is None:
        raise AnalysisError(
            f"source '{source}' needs a mapping of its columns",
            "write a mapping.toml and name it with `map=`",
        )
    if mapping is not None and not importer.needs_mapping:
        raise AnalysisError(f"source '{source}' has no use for a mapping", "leave out `map=`")
    content = b"" if mapping is None else read_table(mapping)
    maker = OUTSIDE_IMPORTERS.maker_of(source)
    if maker is None:
        releases = importer.read(path or Path(), content)
    else:
        with failing_as(
            AnalysisError, f"source '{source}' of {maker}", f"update or remove {maker}"
        ):
            found = importer.read(path or Path(), content)
            releases = tuple(_of(maker, source, one) for one in found)
    for release in releases:
        require_complete(release)
    return releases


def _of(maker: str, source: str, release: Release) -> Release:
    """The release, whose rows name the package that read them.

    Raises:
        ValueError: it would replace the releases of another source.
    """
    if release.source != source or any(row.get("source") != source for row in release.rows):
        raise ValueError(f"it gives a release of {release.source}")
    rows = tuple({**row, "packages": [maker]} for row in release.rows)
    return replace(release, rows=rows)


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
