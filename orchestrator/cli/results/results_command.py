"""`fleetrank results`: lists, checks and changes stored results."""

import dataclasses
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from fleetrank.analysis.stored.exclusions import excluded_column, read_exclusions
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.cli.context import current, host_turn, reading_turn
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table, write_data
from fleetrank.orchestrator.cli.report.report_command import with_selectors
from fleetrank.orchestrator.cli.results.results_exclude import exclude
from fleetrank.orchestrator.cli.results.results_housekeeping import delete, merge
from fleetrank.orchestrator.cli.results.results_import import import_results
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NothingToDoError, StoreError, UsageError
from fleetrank.orchestrator.store.parquet.part_reader import read_sweeps
from fleetrank.orchestrator.store.parquet.parts import to_parquet
from fleetrank.orchestrator.store.reparse import Reparsed, reparse_sweep, store_reparsed
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import is_running, state_of
from fleetrank.orchestrator.workspace.selectors import Selectors

if TYPE_CHECKING:
    from fleetrank.orchestrator.store.health.verify import Examined, Fault

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("import")(import_results)

SweepIds = Annotated[list[str] | None, typer.Argument(help="Sweeps (default: all).")]


class ExportFormat(StrEnum):
    """File formats of `results export`."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


@app.command()
@with_selectors("source", "source_tier", "runtime", "precision", "family", "model")
def audit(
    sweeps: Annotated[list[str] | None, typer.Argument(help="Sweeps (default: all).")] = None,
    *,
    what: Annotated[
        list[str] | None,
        typer.Option(
            "--what", metavar="KIND", help="Only this kind, such as unit-slip; may be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
    selectors: Selectors,
) -> None:
    """Find duplicates, sentinel values, wrong units and outliers.

    Checks measured, imported and simulated results. The most harmful kind of finding comes first.
    """
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.tables.formats import render
    from fleetrank.analysis.tables.tables import make_table

    settings = (("what", ",".join(what)),) if what else ()
    selection = dataclasses.replace(selectors.selection(), origins=ORIGINS, settings=settings)
    store = ResultStore(current().workspace.results)
    with reading_turn("results audit", store.root):
        frame = load_measurements(store.root, origins=ORIGINS)
        if sweeps:
            chosen = [sweep_id for sweep_id in sweeps if store.sweep_record(sweep_id)]
            frame = frame.filter(pl.col("sweep_id").is_in(chosen))
        table = make_table("audit", frame, selection)
    print(render(table, "json" if as_json else "table"), end="")


# The order here is the order of the help.
app.command()(exclude)
app.command()(delete)
app.command()(merge)


@app.command("list")
def list_sweeps(as_json: AsJson = False) -> None:
    """List the sweeps, oldest first."""
    store = ResultStore(current().workspace.results)
    left_out = _left_out(store)
    rows = []
    for sweep_id in store.sweep_ids():
        record = store.sweep_record(sweep_id)
        state = state_of(record, is_running=is_running(store, sweep_id))
        rows.append(
            {
                "sweep_id": sweep_id,
                "state": state,
                "started_utc": record.started_utc,
                "finished_utc": record.finished_utc,
                "git_commit": record.git_commit,
                "excluded": left_out.get(sweep_id),
            }
        )
    print_table(rows, as_json)


def _left_out(store: ResultStore) -> dict[str, str]:
    """Sweeps that `results exclude` removed from all figures: `whole` or `in part`."""
    found: dict[str, str] = {}
    for exclusion in read_exclusions(store.root).entries:
        if exclusion.pattern is None:
            found[exclusion.sweep_id] = "whole"
        else:
            found.setdefault(exclusion.sweep_id, "in part")
    return found


@app.command()
def verify(
    sweeps: SweepIds = None,
    repair: Annotated[
        bool, typer.Option(help="Restore damaged data from its second copy.")
    ] = False,
) -> None:
    """Check every row and compare the Parquet values with the journal."""
    from fleetrank.orchestrator.store.health.repair import repair_sweep
    from fleetrank.orchestrator.store.health.verify import examine

    store = ResultStore(current().workspace.results)
    read_exclusions(store.root)  # raises for damaged ones
    faults: list[Fault] = []
    for sweep_id in _known(store, sweeps):
        if repair:
            with store.lease(sweep_id), host_turn("results verify"):
                done = repair_sweep(store, sweep_id)
            print("".join(f"{sweep_id}: {text}\n" for text in done), end="")
        with host_turn("results verify"):
            found = examine(store, sweep_id)
        print(f"{sweep_id}: {_verdict(found)}")
        for fault in found.faults:
            print(f"{sweep_id}: {fault.text}", file=sys.stderr)
        faults += found.faults
    if faults:
        raise StoreError(
            f"{count_of(len(faults), 'fault')} in the stored results",
            "\n  -> ".join(dict.fromkeys(fault.remedy for fault in faults)),
        )


def _verdict(found: "Examined") -> str:
    verdict = count_of(len(found.faults), "fault") if found.faults else "ok"
    if found.n_unchecked:
        rows = count_of(found.n_unchecked, "stored row")
        return f"{verdict}, {rows} without a checksum, from an older fleetrank"
    return verdict


@app.command()
def compact(sweeps: SweepIds = None) -> None:
    """Write journal rows to Parquet, merge its files, pack the journal.

    A damaged Parquet part is rebuilt from the journal.
    """
    from fleetrank.orchestrator.store.health.repair import require_whole_parts

    store = ResultStore(current().workspace.results)
    for sweep_id in _chosen(store, sweeps):
        with store.lease(sweep_id), host_turn("results compact"):
            done = require_whole_parts(store, sweep_id)
            store.publish(sweep_id)
            n_parts = store.compact(sweep_id)
            is_packed = store.pack_journal(sweep_id)
        print("".join(f"{sweep_id}: {text}\n" for text in done), end="")
        packed = ", journal packed" if is_packed else ""
        print(f"{sweep_id}: {count_of(n_parts, 'part')} merged into {min(n_parts, 1)}{packed}")


@app.command()
def export(
    sweeps: SweepIds = None,
    export_format: Annotated[ExportFormat, typer.Option("--format")] = ExportFormat.CSV,
    out: Annotated[
        Path | None, typer.Option(help="Output file (default: standard output).")
    ] = None,
) -> None:
    """Write every attempt as CSV, Parquet or JSON lines.

    Excluded rows are written too.
    """
    if out is None and export_format is ExportFormat.PARQUET:
        raise UsageError("Parquet cannot be printed", "name a file: --out FILE")
    store = ResultStore(current().workspace.results)
    folders = [store.parts_folder(sweep_id) for sweep_id in _chosen(store, sweeps)]
    with host_turn("results export"):
        marked = read_sweeps(folders).with_columns(excluded_column(read_exclusions(store.root)))
        content = _encode(marked, export_format)
    if out is None:
        write_data(content)
        return
    replace_file(out, content)
    print(out)


@app.command()
def reparse(
    sweeps: SweepIds = None,
    write: Annotated[bool, typer.Option(help="Store changed results as new attempts.")] = False,
    as_json: AsJson = False,
) -> None:
    """Parse stored logs again and show what the current parsers change."""
    store = ResultStore(current().workspace.results)
    read = _reparse_and_store if write else reparse_sweep
    items = [item for sweep_id in _chosen(store, sweeps) for item in read(store, sweep_id)]
    if not items:
        raise NothingToDoError(
            "no stored attempt has a raw log", "only measurements on phones have one"
        )
    print_table([line for item in items for line in _changes(item)], as_json)
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


def _chosen(store: ResultStore, sweeps: list[str] | None) -> list[str]:
    """The named sweeps, each checked, or all sweeps."""
    if sweeps:
        return [sweep_id for sweep_id in sweeps if store.sweep_record(sweep_id)]
    if not (ids := store.sweep_ids()):
        raise NothingToDoError(
            f"{store.root} holds no sweep",
            "run `fleetrank sweep run` or `fleetrank results import`",
        )
    return ids


def _known(store: ResultStore, sweeps: list[str] | None) -> list[str]:
    """As `_chosen`, but accepts a sweep with a damaged record."""
    if sweeps and set(sweeps) <= set(store.sweep_ids()):
        return sweeps
    return _chosen(store, sweeps)


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
