"""`fleetrank results import`: stores published measurements, and those of another workspace."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from fleetrank.analysis.importers.model_facts import read_facts
from fleetrank.analysis.importers.release import IMPORTERS, read_releases
from fleetrank.foundation.codec import json_text
from fleetrank.foundation.errors import count_of, visible_line
from fleetrank.foundation.lease import pause_between_steps
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.cards.zoo import load_cards
from fleetrank.models.errors import ModelError
from fleetrank.models.networks.cost import embedding_count, parameter_count
from fleetrank.orchestrator.cli.context import (
    Now,
    Work,
    current,
    host_turn,
    readable_workspace,
    reading_turn,
    settle_workspace,
    turn_for,
)
from fleetrank.orchestrator.cli.listing import AsJson, print_table, write_data
from fleetrank.orchestrator.cli.report_command import in_options
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.housekeeping import Step, copy_sweep, plan_merge
from fleetrank.orchestrator.imports import Imported, import_release, refuse_unknown_facts
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import copy_side_rows
from fleetrank.orchestrator.workspace.selectors import origins_of
from fleetrank.orchestrator.workspace.workspace import Workspace

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table


_WORKSPACE = "workspace"
"""The source of `--from` whose path is another workspace."""


def import_results(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="A checkout of the source, its data folder, a CSV file, or another workspace; "
            "without for the source demo, which is part of fleetrank."
        ),
    ] = None,
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar=f"<{'|'.join((*IMPORTERS, _WORKSPACE))}>",
            help="Source of the data.",
        ),
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
    """Import published results, or another workspace.

    Each sweep is stored once. Of a workspace only results are copied: no device files, model cards
    and exported files.
    """
    workspace = settle_workspace() if path is None else current().workspace
    if source == _WORKSPACE:
        if path is None:
            raise UsageError("another workspace needs its path", "name its folder")
        if mapping is not None or facts_file is not None:
            raise UsageError("--map and --facts are for published measurements", "leave them out")
        _copy_sweeps(ResultStore(workspace.results), Workspace.at(path), as_json=as_json)
        return
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


def _copy_sweeps(store: ResultStore, workspace: Workspace, *, as_json: bool) -> None:
    """Copies the sweeps and the rows without a sweep of another workspace, all or none.

    Raises:
        UsageError: one differs from a sweep of the same name, or is running.
    """
    other = ResultStore(workspace.results)
    with host_turn("results import"):
        plan = plan_merge(store, other)
    if refused := [one for one in plan if one.step is Step.REFUSE]:
        raise UsageError(
            "; ".join(f"{one.sweep_id}: {one.reason}" for one in refused),
            "wait for a running sweep to end; if two sweeps differ, delete one: "
            "`fleetrank results delete SWEEP`",
        )
    for one in plan:
        if one.step is Step.COPY:
            with host_turn("results import"):
                copy_sweep(store, other, one.sweep_id)
    with host_turn("results import"):
        n_rows = copy_side_rows(store.root, other.root)
    print_table([asdict(one) for one in plan], as_json)
    if n_rows and not as_json:
        print(f"{count_of(n_rows, 'row without a sweep', 'rows without a sweep')} copied")


def _as_json(one: Imported) -> dict[str, object]:
    release = {
        "source": one.release.source,
        "release": one.release.version,
        "licence": one.release.licence,
        "aliases": dict(one.release.aliases),
        "notes": one.release.notes,
    }
    return asdict(replace(one, release=replace(one.release, rows=()))) | release


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
            f"  list them: fleetrank report show trust --part dropped --sweep {one.sweep_id}"
        )
    return lines


# `results export --standard-metrics`: the summary of each run as JSON and as a page.

_HASH_DIGITS = 8
_COMPARISON = "summary.md"
_OF_RUN = ("model", "platform", "card_sha256", "weights_id")


def export_standard_metrics(
    sweeps: Sequence[str], out: Path | None, *, include_simulated: bool, now: bool
) -> None:
    """Prints the records of these sweeps as a JSON list, or writes two files for each.

    Args:
        sweeps: results of other sweeps do not count.
        out: a folder for `MODEL-HASH.json`, `MODEL-HASH.md` and the comparison `summary.md`; `None`
            prints.
        include_simulated: also runs on virtual and simulated devices.
        now: does not wait for a measurement to end.

    Raises:
        UsageError: `out` is a file.
        NoDataError: no sweep has a successful measurement.
    """
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.statistics.summary import run_summaries, summary_table
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.stored.selection import Selection

    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file", "name a folder; each run gets two files in it")
    workspace = readable_workspace()
    with reading_turn(workspace.results, work=Work.ROWS, now=now):
        origins = origins_of(include_simulated=include_simulated)
        selection = Selection(origins=origins, sweep=tuple(sweeps) or None)
        frame = load_measurements(workspace.results, origins=ORIGINS)
        session = Session(frame, selection, results=workspace.results)
        runs = run_summaries(session, _architectures(workspace))
        comparison = in_options(summary_table(session))
    if out is None:
        write_data(f"{json_text(_records(runs), indent=2)}\n".encode())
    else:
        _write_files(out, runs, comparison)


def _records(runs: pl.DataFrame) -> list[dict[str, object]]:
    times = pl.col("started_utc").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    return runs.with_columns(times).to_dicts()


def _write_files(out: Path, runs: pl.DataFrame, comparison: "Table") -> None:
    from fleetrank.analysis.statistics.summary import field_rows
    from fleetrank.analysis.tables.formats import render
    from fleetrank.analysis.tables.table import Table

    for at, record in enumerate(_records(runs)):
        run = "/".join(str(record[one]) for one in _OF_RUN)
        # Without characters that a file cannot have.
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", str(record["model"])).strip(".-")[:80]
        name = f"{readable}-{hashlib.sha256(run.encode()).hexdigest()[:_HASH_DIGITS]}"
        replace_file(out / f"{name}.json", f"{json_text(record, indent=2)}\n".encode())
        fields = field_rows(runs[at]).drop("model", "platform")
        page = Table(title=f"{record['model']} on {record['platform']}", frame=fields)
        replace_file(out / f"{name}.md", render(page, "markdown").encode())
    page_text = render(comparison, "markdown", is_explained=True)
    replace_file(out / _COMPARISON, page_text.encode())
    print(out)


def _architectures(workspace: Workspace) -> dict[str, dict[str, int | float]]:
    """Of every language model whose card can be read: by the checksum that rows have."""
    found = {}
    for card in load_cards(workspace.cards).good.values():
        if card.language is None:
            continue
        try:
            found[resolve(card).sha256] = architecture(card.language)
        except ModelError:
            # Its file is missing; the fields stay empty.
            continue
    return found


def architecture(shape: LanguageShape) -> dict[str, int | float]:
    """The values of `summary_fields.ARCHITECTURE`."""
    embedding = embedding_count(shape)
    names = ("layers", "width", "hidden", "heads", "kv_heads", "vocabulary", "context")
    return {name: getattr(shape, name) for name in names} | {
        "embedding_parameters": embedding,
        "embedding_ratio": embedding / parameter_count(shape),
        "glu_expansion": shape.hidden / shape.width,
    }
