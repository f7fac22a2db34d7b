"""`fleetrank results import`: stores published measurements."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.foundation.wording import count_of
from fleetrank.analysis.importers.release import Release
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.small_file import read_small_bytes
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import visible_line
from fleetrank.models.cards.zoo import load_cards
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.host_turn import host_turn
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.imports import Imported, import_release
from fleetrank.orchestrator.store.results import ResultStore

Files = Mapping[str, bytes]

_MAX_FILE_BYTES = 64 << 20
"""Size limit against a wrong folder filling memory; the largest known table has 0.3 MB."""


class Source(StrEnum):
    """Sources whose tables can be read."""

    TIMM = "timm"
    QAI_HUB = "qai-hub"
    CSV = "csv"


def import_results(
    path: Annotated[
        Path, typer.Argument(help="A checkout of the source, its data folder, or a CSV file.")
    ],
    *,
    source: Annotated[Source, typer.Option("--from", help="Source of the data.")],
    mapping: Annotated[
        Path | None, typer.Option("--map", help="For csv: TOML file that maps columns.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import published measurements; each is stored once."""
    workspace = current().workspace
    releases = _read(source, path, mapping)
    store, cards = ResultStore(workspace.results), load_cards(workspace.cards)
    with host_turn("results import"):
        done = [import_release(store, release, cards, workspace.root) for release in releases]
    if as_json:
        print(json_text([_as_json(one) for one in done], indent=2))
        return
    for line in (line for one in done for line in _lines(one)):
        print(visible_line(line))


def _read(source: Source, path: Path, mapping: Path | None) -> tuple[Release, ...]:
    if (source is Source.CSV) != (mapping is not None):
        raise UsageError(
            "--map and --from csv must be used together",
            "give --from csv FILE --map mapping.toml",
        )
    if mapping is None:
        return _READERS[source](path)
    from fleetrank.analysis.importers.csv_map import parse_csv

    return parse_csv(path.name, read_table(path), read_table(mapping))


def _read_timm(folder: Path) -> tuple[Release, ...]:
    from fleetrank.analysis.importers.timm import parse_timm

    inside = folder / "results"
    return parse_timm(_read_files(inside if inside.is_dir() else folder, "*.csv"))


def _read_qai_hub(folder: Path) -> tuple[Release, ...]:
    from fleetrank.analysis.importers.qai_hub import parse_qai_hub
    from fleetrank.analysis.importers.qai_hub_files import FILES

    files = _read_files(folder, *(f"**/{name}" for name in FILES))
    # The folder of a release has the release's name.
    return parse_qai_hub({f"{folder.resolve().name}/{name}": files[name] for name in files})


_READERS: Mapping[Source, Callable[[Path], tuple[Release, ...]]] = {
    Source.TIMM: _read_timm,
    Source.QAI_HUB: _read_qai_hub,
}


def _read_files(folder: Path, *patterns: str) -> Files:
    """Maps the relative name of every matching file to its content.

    Raises:
        UsageError: the folder does not exist, or a file cannot be a table.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "name the folder that holds the tables")
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix(): read_table(path) for path in paths}


def read_table(path: Path) -> bytes:
    """The content of a published table.

    Raises:
        UsageError: the file is unreadable or too large.
    """
    try:
        return read_small_bytes(path, _MAX_FILE_BYTES)
    except BadFileError as error:
        raise UsageError(error.message, error.remedy) from error


def _as_json(one: Imported) -> dict[str, object]:
    return {
        "sweep_id": one.sweep_id,
        "is_new": one.is_new,
        "source": one.release.source,
        "release": one.release.version,
        "licence": one.release.licence,
        "n_rows": one.n_rows,
        "dropped": dict(one.dropped),
        "aliases": dict(one.release.aliases),
        "notes": list(one.release.notes),
    }


def _lines(one: Imported) -> list[str]:
    if not one.is_new:
        return [f"{one.sweep_id}: nothing new, {count_of(one.n_rows, 'row')} already stored"]
    used = one.n_rows - sum(one.dropped.values())
    lines = [
        f"{one.sweep_id}: {count_of(one.n_rows, 'row')}, {used} usable ({one.release.licence})"
    ]
    lines += [f"  dropped: {count} x {reason}" for reason, count in sorted(one.dropped.items())]
    lines += [f"  alias: {name} is {kept}" for name, kept in one.release.aliases]
    lines += [f"  note: {note}" for note in one.release.notes]
    if one.dropped:
        lines.append(f"  list them: fleetrank report show dropped --sweep {one.sweep_id}")
    return lines
