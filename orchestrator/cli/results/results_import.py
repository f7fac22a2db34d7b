"""`fleetrank results import`: stores published measurements."""

from pathlib import Path
from typing import Annotated

import typer

from fleetrank.analysis.importers.facts_file import read_facts
from fleetrank.analysis.importers.importer import IMPORTERS, read_releases
from fleetrank.foundation.reading import pause_between_steps
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import visible_line
from fleetrank.foundation.wording import count_of
from fleetrank.models.cards.zoo import load_cards
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.cli.reading_turn import Now, Work, turn_for
from fleetrank.orchestrator.imports import Imported, import_release, refuse_unknown_facts
from fleetrank.orchestrator.store.results import ResultStore


def import_results(
    path: Annotated[
        Path, typer.Argument(help="A checkout of the source, its data folder, or a CSV file.")
    ],
    *,
    source: Annotated[
        str,
        typer.Option("--from", metavar=f"<{'|'.join(IMPORTERS)}>", help="Source of the data."),
    ],
    mapping: Annotated[
        Path | None, typer.Option("--map", help="For csv: TOML file that maps columns.")
    ] = None,
    facts_file: Annotated[
        Path | None,
        typer.Option(
            "--facts",
            help="CSV file of what the source lacks: model, flops, params, accuracy, family.",
        ),
    ] = None,
    now: Now = False,
    as_json: AsJson = False,
) -> None:
    """Import published measurements; each is stored once."""
    workspace = current().workspace
    facts = None if facts_file is None else read_facts(facts_file)
    releases = read_releases(source, path, mapping)
    store, cards = ResultStore(workspace.results), load_cards(workspace.cards)
    named = {str(row["model"]) for release in releases for row in release.rows}
    cards.check(sorted(named))
    if facts is not None:
        refuse_unknown_facts(releases, cards.good, facts)
    done: list[Imported] = []
    with turn_for((), work=Work.EVERY_TABLE, now=now):
        for release in releases:
            pause_between_steps()
            done.append(import_release(store, release, cards.good, workspace.root, facts))
    if as_json:
        print(json_text([_as_json(one) for one in done], indent=2))
        return
    for line in (line for one in done for line in _lines(one)):
        print(visible_line(line))


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
        "earlier": list(one.earlier),
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
    lines += [
        f"  the same release is also stored as {name}, with other content; the newer import "
        f"counts. Remove the older: fleetrank results delete {name}"
        for name in one.earlier
    ]
    if one.dropped:
        lines.append(
            f"  list them: fleetrank report show quality --list dropped --sweep {one.sweep_id}"
        )
    return lines
