"""`fleetrank results`: lists, checks and changes stored results."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import polars as pl
import typer

from fleetrank.analysis.stored.exclusions import excluded_column, read_exclusions
from fleetrank.analysis.stored.part_list import (
    MEASUREMENTS,
    NO_SWEEP,
    PARTS,
    REPAIR,
    part_files,
    parts_folder,
    published_sweeps,
)
from fleetrank.analysis.stored.side_tables import SIDE_TABLES, read_side
from fleetrank.analysis.stored.sweep_tags import shown_tags
from fleetrank.analysis.tables.formats import csv_text
from fleetrank.foundation.reading_beside import pause_between_steps
from fleetrank.foundation.vocabulary import Form
from fleetrank.foundation.wording import count_of, did_you_mean
from fleetrank.orchestrator.cli.context import Now, current, host_turn, readable_workspace
from fleetrank.orchestrator.cli.listing import AsJson, TableView, print_table, with_view, write_data
from fleetrank.orchestrator.cli.reading_turn import Work, turn_for
from fleetrank.orchestrator.cli.results_exclude import exclude
from fleetrank.orchestrator.cli.results_import import import_results
from fleetrank.orchestrator.cli.standard_metrics import export_standard_metrics
from fleetrank.orchestrator.durable import replace_file
from fleetrank.orchestrator.errors import NothingToDoError, StoreError, UsageError
from fleetrank.orchestrator.housekeeping import delete_sweep, plan_deletion
from fleetrank.orchestrator.store.parts import read_sweeps, to_parquet
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import is_running, state_of

if TYPE_CHECKING:
    import polars as pl

SweepIds = Annotated[list[str] | None, typer.Argument(help="Sweeps (default: all).")]


def chosen_sweeps(store: ResultStore, sweeps: list[str] | None) -> list[str]:
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
    """As `chosen_sweeps`, but accepts a sweep with a damaged record."""
    if sweeps and set(sweeps) <= set(store.sweep_ids()):
        return sweeps
    return chosen_sweeps(store, sweeps)


def verify(
    sweeps: SweepIds = None,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Restore damaged data from its second copy.")
    ] = False,
    now: Now = False,
    as_json: AsJson = False,
) -> None:
    """Check journals and parts by checksum, rows by their samples."""
    from fleetrank.orchestrator.store.health import (
        StoredFault,
        examine,
        hidden_sweeps,
        put_strays_aside,
        repair_sweep,
        stray_faults,
    )

    store = ResultStore(readable_workspace().results)
    read_exclusions(store.root)  # raises for damaged ones
    faults: list[StoredFault] = []
    rows: list[dict[str, object]] = []
    if repair and not sweeps:
        unfinished = (f"{one}: its start was interrupted" for one in store.remove_unfinished())
        for said in (*put_strays_aside(store), *unfinished):
            print(said, file=sys.stderr)
    has_others, strays = NO_SWEEP in published_sweeps(store.root), [*stray_faults(store)]
    is_known = bool(sweeps or store.sweep_ids()) or not (has_others or strays)
    chosen = _known(store, sweeps) if is_known else []
    chosen += [NO_SWEEP] if has_others and not sweeps else []
    parts = [path for one in chosen for path in store.parts_folder(one).glob(PARTS)]
    with turn_for(parts, work=Work.CHECKSUMS, now=now):
        done: dict[str, list[str]] = {sweep_id: [] for sweep_id in chosen}
        # Twice: a repair can give rows to a sweep that was looked at before it.
        for sweep_id in chosen * 2 if repair else []:
            with store.lease(sweep_id), host_turn("results verify"):
                done[sweep_id] += repair_sweep(store, sweep_id)
        here = store.sweep_ids()
        chosen += [] if sweeps else [one for one in here if one not in chosen]
        for sweep_id in chosen:
            pause_between_steps(f"checks {sweep_id}")
            found = examine(store, sweep_id) if sweep_id in (*here, NO_SWEEP) else []
            name = None if sweep_id == NO_SWEEP else sweep_id
            if not as_json:
                verdict = count_of(len(found), "fault") if found else "ok"
                print(
                    "".join(
                        f"{name or _WITHOUT}: {text}\n"
                        for text in (*done.get(sweep_id, ()), verdict)
                    ),
                    end="",
                )
            for fault in found:
                print(f"{name or _WITHOUT}: {fault.text}", file=sys.stderr)
            texts = [fault.text for fault in found]
            rows.append({"sweep_id": name, "repaired": done.get(sweep_id, []), "faults": texts})
            faults += found
    if as_json:
        print_table(rows, as_json)
    for fault in (*hidden_sweeps(store), *strays):
        print(fault.text, file=sys.stderr)
        faults.append(fault)
    if faults:
        raise StoreError(
            f"{count_of(len(faults), 'fault')} in the stored results",
            "\n  -> ".join(dict.fromkeys(fault.remedy for fault in faults)),
        )


_WITHOUT = "rows without a sweep"


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
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Carry out the plan. Without it the plan is only shown.")
    ] = False,
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


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("import")(import_results)
_RowForm = Literal[Form.CSV, Form.PARQUET, Form.JSON]
# The order here is the order of the help.
app.command()(exclude)
app.command()(delete)


@app.command("list")
@with_view
def list_sweeps(*, as_json: AsJson = False, view: TableView) -> None:
    """List the sweeps, oldest first."""
    store = ResultStore(readable_workspace().results)
    left_out = _left_out(store)
    rows = []
    for sweep_id in store.sweep_ids():
        record, tags = store.record_or_id(sweep_id), shown_tags(store.root, sweep_id)
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
    shown = ("sweep_id", "state", "started_utc", "excluded", "side_tables", "tags", "note")
    print_table(rows, as_json, view, shown)


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
    store = ResultStore(readable_workspace().results)
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
