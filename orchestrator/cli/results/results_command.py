"""`fleetrank results`: lists, checks and changes stored results."""

import dataclasses
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from fleetrank.analysis.stored.exclusions import excluded_column, read_exclusions
from fleetrank.analysis.stored.part_files import part_files
from fleetrank.analysis.stored.side.side_registry import SIDE_TABLES
from fleetrank.analysis.stored.side.side_table import read_side
from fleetrank.analysis.stored.sweep_record import shown_tags
from fleetrank.foundation.wording import count_of, did_you_mean
from fleetrank.orchestrator.cli.context import current, host_turn
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table, write_data
from fleetrank.orchestrator.cli.output.table_view import TableView, with_view
from fleetrank.orchestrator.cli.reading_turn import Now, Work, reading_turn, turn_for
from fleetrank.orchestrator.cli.report.report_command import print_in_form
from fleetrank.orchestrator.cli.report.selector_options import with_selectors
from fleetrank.orchestrator.cli.results.results_checks import (
    SweepIds,
    chosen_sweeps,
    compact,
    verify,
)
from fleetrank.orchestrator.cli.results.results_exclude import exclude
from fleetrank.orchestrator.cli.results.results_housekeeping import delete, merge
from fleetrank.orchestrator.cli.results.results_import import import_results
from fleetrank.orchestrator.cli.results.results_tag import tag
from fleetrank.orchestrator.cli.results.standard_metrics import export_standard_metrics
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.progress.wording import counted_from_one
from fleetrank.orchestrator.store.parquet.part_reader import read_sweeps
from fleetrank.orchestrator.store.parquet.parts import to_parquet
from fleetrank.orchestrator.store.reparse import Reparsed, reparse_sweep, store_reparsed
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side_records import side_folders_of
from fleetrank.orchestrator.sweep.sweep_status import is_running, state_of
from fleetrank.orchestrator.workspace.selectors import Selectors, TableFormat

if TYPE_CHECKING:
    pass

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("import")(import_results)


MEASUREMENTS = "measurements"
"""The name of the rows that are of no side table."""


class ExportFormat(StrEnum):
    """File formats of `results export`."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


@app.command()
@with_view
@with_selectors("source", "source_tier", "runtime", "precision", "workload", "family", "model")
def audit(
    sweeps: Annotated[list[str] | None, typer.Argument(help="Sweeps (default: all).")] = None,
    *,
    what: Annotated[
        list[str] | None,
        typer.Option(
            "--what", metavar="KIND", help="Only this kind, such as unit-slip; may be repeated."
        ),
    ] = None,
    now: Now = False,
    as_json: AsJson = False,
    view: TableView,
    selectors: Selectors,
) -> None:
    """Find duplicates, sentinel values, wrong units and outliers.

    Checks measured, imported and simulated results. The most harmful kind of finding comes first.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.tables.tables import check_request, make_table

    settings = (("list", "findings"), *((("what", ",".join(what)),) if what else ()))
    selection = dataclasses.replace(selectors.selection(), origins=ORIGINS, settings=settings)
    store = ResultStore(current().workspace.results)
    frame = load_measurements(store.root, origins=ORIGINS)
    if sweeps:
        chosen = [sweep_id for sweep_id in sweeps if store.sweep_record(sweep_id)]
        frame = frame.filter(pl.col("sweep_id").is_in(chosen))
    check_request("quality", frame, selection)
    with reading_turn(store.root, work=Work.ROWS, now=now):
        table = make_table("quality", frame, selection)
    form = TableFormat.JSON if as_json else TableFormat.TABLE
    print_in_form(table, form, is_explained=False, view=view)


# The order here is the order of the help.
app.command()(exclude)
app.command()(delete)
app.command()(merge)
app.command()(tag)


@app.command("list")
@with_view
def list_sweeps(*, as_json: AsJson = False, view: TableView) -> None:
    """List the sweeps, oldest first."""
    store = ResultStore(current().workspace.results)
    left_out = _left_out(store)
    rows = []
    for sweep_id in store.sweep_ids():
        record, tags = store.sweep_record(sweep_id), shown_tags(store.root, sweep_id)
        state = state_of(record, is_running=is_running(store, sweep_id))
        rows.append(
            {
                "sweep_id": sweep_id,
                "state": state,
                "started_utc": record.started_utc,
                "finished_utc": record.finished_utc,
                "git_commit": record.git_commit,
                "excluded": left_out.get(sweep_id),
                "side_tables": [path.parent.name for path in side_folders_of(store.root, sweep_id)],
                "tags": list(tags.tags),
                "note": tags.note,
            }
        )
    print_table(rows, as_json, view)


def _left_out(store: ResultStore) -> dict[str, str]:
    """Sweeps that `results exclude` removed from all figures: `whole` or `in part`."""
    found: dict[str, str] = {}
    for exclusion in read_exclusions(store.root).entries:
        if exclusion.pattern is None:
            found[exclusion.sweep_id] = "whole"
        else:
            found.setdefault(exclusion.sweep_id, "in part")
    return found


app.command()(verify)
app.command()(compact)


@app.command()
def export(
    sweeps: SweepIds = None,
    *,
    export_format: Annotated[ExportFormat, typer.Option("--format")] = ExportFormat.CSV,
    out: Annotated[
        Path | None, typer.Option(help="Output file (default: standard output).")
    ] = None,
    table: Annotated[
        str, typer.Option(help=f"Rows to write: {', '.join((MEASUREMENTS, *SIDE_TABLES))}.")
    ] = MEASUREMENTS,
    standard_metrics: Annotated[
        bool,
        typer.Option(
            "--standard-metrics",
            help="One record for each model and platform instead of rows: JSON, or with --out a "
            "folder of JSON and Markdown files.",
        ),
    ] = False,
    include_simulated: Annotated[
        bool,
        typer.Option(
            "--include-simulated",
            help="With --standard-metrics: include virtual and simulated devices.",
        ),
    ] = False,
    now: Now = False,
) -> None:
    """Write every attempt as CSV, Parquet or JSON lines.

    Excluded rows are written too, and those of simulated devices. With --table, the rows of a side
    table are written. With --standard-metrics, the summary of each run is written.
    """
    store = ResultStore(current().workspace.results)
    if standard_metrics:
        if table != MEASUREMENTS or export_format is ExportFormat.PARQUET:
            raise UsageError(
                "--standard-metrics writes JSON and Markdown of measurements",
                "leave out --table and --format",
            )
        chosen = chosen_sweeps(store, sweeps)
        export_standard_metrics(chosen, out, include_simulated=include_simulated, now=now)
        return
    if include_simulated:
        raise UsageError(
            "--include-simulated is an option of --standard-metrics",
            "leave it out: rows of every device are written",
        )
    if out is None and export_format is ExportFormat.PARQUET:
        raise UsageError("Parquet cannot be printed", "name a file: --out FILE")
    if table != MEASUREMENTS:
        _write_out(_encode(_side_rows(store, table, sweeps), export_format), out)
        return
    folders = [store.parts_folder(sweep_id) for sweep_id in chosen_sweeps(store, sweeps)]
    parts = [path for folder in folders for path in part_files(folder)]
    with turn_for(parts, work=Work.ROWS, now=now):
        marked = read_sweeps(folders).with_columns(excluded_column(read_exclusions(store.root)))
        content = _encode(marked, export_format)
    _write_out(content, out)


def _write_out(content: bytes, out: Path | None) -> None:
    if out is None:
        write_data(content)
        return
    replace_file(out, content)
    print(out)


def _side_rows(store: ResultStore, table: str, sweeps: list[str] | None) -> pl.DataFrame:
    if table not in SIDE_TABLES:
        hint = did_you_mean(table, [MEASUREMENTS, *SIDE_TABLES])
        raise UsageError(
            f"no table '{table}'", f"{hint}there are {', '.join((MEASUREMENTS, *SIDE_TABLES))}"
        )
    chosen = chosen_sweeps(store, sweeps) if sweeps else ()
    frame = read_side(store.root, SIDE_TABLES[table], sweeps=chosen)
    if frame.is_empty():
        raise NothingToDoError(f"no row of {table} is stored", SIDE_TABLES[table].doc)
    return frame


@app.command()
def reparse(
    sweeps: SweepIds = None,
    write: Annotated[bool, typer.Option(help="Store changed results as new attempts.")] = False,
    as_json: AsJson = False,
) -> None:
    """Parse stored logs again and show what the current parsers change."""
    store = ResultStore(current().workspace.results)
    read = _reparse_and_store if write else reparse_sweep
    items = [item for sweep_id in chosen_sweeps(store, sweeps) for item in read(store, sweep_id)]
    if not items:
        raise NothingToDoError(
            "no stored attempt has a raw log", "only measurements on phones have one"
        )
    lines = [line for item in items for line in _changes(item)]
    print_table(lines if as_json else [counted_from_one(line) for line in lines], as_json)
    if not as_json:
        n_new = sum(item.new is not None for item in items)
        end = "stored as new attempts" if write else "nothing stored; add --write to store them"
        changed = count_of(n_new, "attempt changes", "attempts change")
        print(f"{count_of(len(items), 'log')} read, {changed}: {end}")


def _reparse_and_store(store: ResultStore, sweep_id: str) -> list[Reparsed]:
    """Reads while holding the lease, so that a resume cannot use the same attempt number."""
    with store.lease(sweep_id), host_turn("results reparse"):
        items = reparse_sweep(store, sweep_id)
        store_reparsed(store, sweep_id, items)
    return items


def _changes(item: Reparsed) -> Iterator[dict[str, object]]:
    """One line for each changed column, or for a log that can no longer be parsed."""
    names = ("sweep_id", "model", "device", "repeat", "attempt")
    where = {name: item.old.get(name) for name in names}
    if item.refusal is not None:
        yield {**where, "column": "status", "before": "ok", "after": item.refusal}
    for column, before, after in item.changes:
        yield {**where, "column": column, "before": _short(before), "after": _short(after)}


def _short(value: object) -> object:
    """Shortens a long list of samples to its length."""
    return f"{len(value)} values" if isinstance(value, list) and len(value) > 10 else value


def _encode(frame: pl.DataFrame, export_format: ExportFormat) -> bytes:
    if frame.is_empty():
        raise NothingToDoError(
            "no row has been published", "run `fleetrank results compact` to publish the journal"
        )
    if export_format is ExportFormat.PARQUET:
        return to_parquet(frame)
    if export_format is ExportFormat.JSON:
        return frame.write_ndjson().encode()
    # CSV has no lists, so they are written as '1;2;3'.
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    joined = [pl.col(name).cast(pl.List(pl.String)).list.join(";") for name in lists]
    return frame.with_columns(joined).write_csv().encode()
