"""`fleetrank results`: what has been stored."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from orchestrator.cli.context import current
from orchestrator.cli.host_turn import host_turn
from orchestrator.cli.listing import print_table
from orchestrator.cli.results_audit import audit
from orchestrator.cli.results_import import import_results
from orchestrator.errors import NothingToDoError, StoreError, UsageError
from orchestrator.store.durable import replace_file
from orchestrator.store.parts import read_sweeps, to_parquet
from orchestrator.store.results import ResultStore
from orchestrator.store.verify import find_faults

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("import")(import_results)
app.command()(audit)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SweepIds = Annotated[list[str] | None, typer.Argument(help="Sweeps; all when left out.")]


class ExportFormat(StrEnum):
    """What `results export` writes."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


@app.command("list")
def list_sweeps(as_json: AsJson = False) -> None:
    """List the sweeps, oldest first."""
    store = ResultStore(current().workspace.results)
    records = [store.sweep_record(sweep_id) for sweep_id in store.sweep_ids()]
    names = ("sweep_id", "state", "started_utc", "finished_utc", "git_commit")
    print_table([{name: record.get(name) for name in names} for record in records], as_json)


@app.command()
def verify(sweeps: SweepIds = None) -> None:
    """Recompute every summary from its samples, and compare Parquet with the journal."""
    store = ResultStore(current().workspace.results)
    faults = []
    for sweep_id in _chosen(store, sweeps):
        found = find_faults(store, sweep_id)
        print(f"{sweep_id}: {'ok' if not found else f'{len(found)} faults'}")
        faults += [f"{sweep_id}: {fault}" for fault in found]
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        raise StoreError(
            f"{len(faults)} faults in the stored results",
            "keep a copy, delete the Parquet parts of that sweep and run `fleetrank results "
            "compact`: they are made again from the journal",
        )


@app.command()
def compact(sweeps: SweepIds = None) -> None:
    """Publish what the journal holds, and merge the Parquet parts of each sweep into one."""
    store = ResultStore(current().workspace.results)
    for sweep_id in _chosen(store, sweeps):
        with store.lease(sweep_id), host_turn("results compact"):
            store.publish(sweep_id)
            n_parts = store.compact(sweep_id)
        print(f"{sweep_id}: {n_parts} parts became {min(n_parts, 1)}")


@app.command()
def export(
    sweeps: SweepIds = None,
    export_format: Annotated[ExportFormat, typer.Option("--format")] = ExportFormat.CSV,
    out: Annotated[Path | None, typer.Option(help="A file; standard output if left out.")] = None,
) -> None:
    """Write every attempt of some sweeps as CSV, Parquet or JSON lines."""
    store = ResultStore(current().workspace.results)
    frame = read_sweeps([store.parts_folder(sweep_id) for sweep_id in _chosen(store, sweeps)])
    if out is None:
        if export_format is ExportFormat.PARQUET:
            raise UsageError("Parquet is no text", "name a file: --out FILE")
        sys.stdout.write(_encode(frame, export_format).decode())
        return
    replace_file(out, _encode(frame, export_format))
    print(out)


def _chosen(store: ResultStore, sweeps: list[str] | None) -> list[str]:
    """The sweeps named, each checked, or all."""
    if sweeps:
        return [sweep_id for sweep_id in sweeps if store.sweep_record(sweep_id)]
    if not (ids := store.sweep_ids()):
        raise NothingToDoError(
            f"{store.root} holds no sweep", "`fleetrank sweep run`, or `fleetrank results import`"
        )
    return ids


def _encode(frame: pl.DataFrame, export_format: ExportFormat) -> bytes:
    if frame.is_empty():
        raise NothingToDoError(
            "no row has been published", "`fleetrank results compact` publishes a journal"
        )
    if export_format is ExportFormat.PARQUET:
        return to_parquet(frame)
    if export_format is ExportFormat.JSON:
        return frame.write_ndjson().encode()
    # CSV has no lists: '1;2;3'.
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    joined = [pl.col(name).cast(pl.List(pl.String)).list.join(";") for name in lists]
    return frame.with_columns(joined).write_csv().encode()
