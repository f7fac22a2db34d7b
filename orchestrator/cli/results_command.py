"""`fleetrank results`: lists, checks and changes stored results."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
import typer

from fleetrank.analysis.stored.selection import excluded_column, read_exclusions
from fleetrank.analysis.stored.side_tables import SIDE_TABLES, read_side
from fleetrank.analysis.stored.sweep_record import (
    MEASUREMENTS,
    REPAIR,
    part_files,
    parts_folder,
    shown_tags,
)
from fleetrank.analysis.tables.formats import csv_text
from fleetrank.foundation.errors import count_of, did_you_mean
from fleetrank.foundation.vocabulary import Form
from fleetrank.orchestrator.cli.context import current, host_turn
from fleetrank.orchestrator.cli.listing import AsJson, print_table, write_data
from fleetrank.orchestrator.cli.options import with_selectors
from fleetrank.orchestrator.cli.reading_turn import Now, Work, reading_turn, turn_for
from fleetrank.orchestrator.cli.report_command import print_in_form
from fleetrank.orchestrator.cli.results_checks import SweepIds, chosen_sweeps, exclude, verify
from fleetrank.orchestrator.cli.results_import import export_standard_metrics, import_results
from fleetrank.orchestrator.cli.table_view import TableView, with_view
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.housekeeping import (
    Merging,
    Step,
    copy_sweep,
    delete_sweep,
    plan_deletion,
    plan_merge,
)
from fleetrank.orchestrator.progress import counted_from_one
from fleetrank.orchestrator.store.parts import read_sweeps, to_parquet
from fleetrank.orchestrator.store.reparse import Reparsed, reparse_sweep, store_reparsed
from fleetrank.orchestrator.store.results import ResultStore, change_tags
from fleetrank.orchestrator.store.side import copy_side_rows, missing_lines
from fleetrank.orchestrator.sweep.sweep_status import is_running, state_of
from fleetrank.orchestrator.workspace.selectors import Selectors
from fleetrank.orchestrator.workspace.workspace import Workspace

# `fleetrank results delete` and `merge`: delete sweeps, copy those of another workspace.

Yes = Annotated[
    bool, typer.Option("--yes", help="Carry out the plan. Without it the plan is only shown.")
]


def is_confirmed(question: str, is_sure: bool, as_json: bool) -> bool:
    """Whether the user agreed, by `--yes` or at a terminal; otherwise prints a hint."""
    if is_sure:
        return True
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("This is the plan. Add --yes to carry it out.", file=sys.stderr)
        return False
    return typer.confirm(question)


def delete(
    sweeps: Annotated[list[str], typer.Argument(help="Sweeps to delete.", metavar="SWEEP...")],
    *,
    is_sure: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete sweeps with all their files.

    Deletes rows, journals, raw logs, records and the exclusions of these sweeps. Shows first what
    it would delete. To keep a sweep but leave it out of all figures, use `results exclude`.
    """
    store = ResultStore(current().workspace.results)
    plan = plan_deletion(store, sweeps)
    if not as_json:
        print_table([asdict(one) for one in plan], as_json)
    is_done = is_confirmed(f"Delete {count_of(len(plan), 'sweep')}?", is_sure, as_json)
    if is_done:
        for one in plan:
            with host_turn("results delete"):
                delete_sweep(store, one.sweep_id)
    if as_json:
        print_table([asdict(one) | {"is_done": is_done} for one in plan], as_json)
    else:
        print(f"{count_of(len(plan), 'sweep')} deleted" if is_done else "nothing deleted")


def merge(
    other_workspace: Annotated[Path, typer.Argument(help="The workspace to copy from.")],
    *,
    is_sure: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Copy the sweeps of another workspace into this one.

    Shows first what it would copy. Rows of side tables are copied too. Device files, model cards
    and exported files are not copied.
    """
    store = ResultStore(current().workspace.results)
    other = ResultStore(Workspace.at(other_workspace).results)
    with host_turn("results merge"):
        plan = plan_merge(store, other)
    if not as_json:
        print_table([asdict(one) for one in plan], as_json)
    _refuse_any(plan)
    copied = [one for one in plan if one.step is Step.COPY]
    n_rows = len(missing_lines(store.root, other.root))
    side = count_of(n_rows, "row without a sweep", "rows without a sweep")
    what = " and ".join(
        [count_of(len(copied), "sweep")] * bool(copied or not n_rows) + [side] * bool(n_rows)
    )
    is_done = bool(copied or n_rows) and is_confirmed(f"Copy {what}?", is_sure, as_json)
    if is_done:
        for one in copied:
            with host_turn("results merge"):
                copy_sweep(store, other, one.sweep_id)
        with host_turn("results merge"):
            copy_side_rows(store.root, other.root)
    if as_json:
        print_table([asdict(one) | {"is_done": is_done} for one in plan], as_json)
    else:
        print(f"{what} copied" if is_done else "nothing copied")
        if is_done:
            print("device files, model cards and exported files were not copied")


def _refuse_any(plan: Sequence[Merging]) -> None:
    """Raises if any sweep conflicts: a workspace is copied completely or not at all."""
    if refused := [one for one in plan if one.step is Step.REFUSE]:
        raise UsageError(
            "; ".join(f"{one.sweep_id}: {one.reason}" for one in refused),
            "wait for a running sweep to end; if two sweeps differ, delete one: "
            "`fleetrank results delete SWEEP`",
        )


# `fleetrank results tag`: shows and changes the tags and the note of a sweep.


def tag(
    sweep: Annotated[str, typer.Argument(help="The sweep.")],
    tags: Annotated[list[str] | None, typer.Argument(metavar="TAG...", help="Tags to add.")] = None,
    *,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Remove this tag; may be repeated.")
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="Replace the note, one line; empty removes it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tag a sweep, or show its tags.

    Lists, status and page show tags and note, and `--sweep tag:NAME` selects by tag. Rows do not
    change.
    """
    store = ResultStore(current().workspace.results)
    found = change_tags(store, sweep, added=tags or (), removed=remove or (), note=note)
    row = {"sweep_id": sweep, "tags": list(found.tags), "note": found.note}
    print_table([row], as_json)


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("import")(import_results)


_RowForm = Literal[Form.CSV, Form.PARQUET, Form.JSON]


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
    print_in_form(table, Form.JSON if as_json else Form.TABLE, is_explained=False, view=view)


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
                "side_tables": [
                    name
                    for name in SIDE_TABLES
                    if parts_folder(store.root, sweep_id, name).exists()
                ],
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


@app.command()
def export(
    sweeps: SweepIds = None,
    *,
    export_format: Annotated[_RowForm, typer.Option("--format")] = Form.CSV,
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
        if table != MEASUREMENTS or export_format is Form.PARQUET:
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
    if out is None and export_format is Form.PARQUET:
        raise UsageError("Parquet cannot be printed", "name a file: --out FILE")
    if table != MEASUREMENTS:
        _write_out(_encode(_side_rows(store, table, sweeps), export_format), out)
        return
    chosen = chosen_sweeps(store, sweeps)
    parts = [path for sweep_id in chosen for path in part_files(store.root, sweep_id)]
    with turn_for(parts, work=Work.ROWS, now=now):
        marked = read_sweeps(store.root, chosen).with_columns(
            excluded_column(read_exclusions(store.root))
        )
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


def _encode(frame: pl.DataFrame, export_format: Form) -> bytes:
    if frame.is_empty():
        raise NothingToDoError(
            "no row has been published", f"{REPAIR} publishes what is in the journal"
        )
    if export_format is Form.PARQUET:
        return to_parquet(frame)
    if export_format is Form.JSON:
        return frame.write_ndjson().encode()
    return csv_text(frame).encode()
