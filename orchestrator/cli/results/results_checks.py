"""`fleetrank results verify` and `compact`: check stored rows, and merge their files."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.stored.exclusions import read_exclusions
from fleetrank.analysis.stored.part_files import PARTS
from fleetrank.analysis.stored.side.side_registry import SIDE_TABLES
from fleetrank.analysis.stored.side.side_table import damaged_side_files, side_files, side_folder
from fleetrank.foundation.reading import pause_between_steps
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.cli.context import current, host_turn
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.cli.reading_turn import Now, Work, turn_for
from fleetrank.orchestrator.errors import NothingToDoError, StoreError
from fleetrank.orchestrator.store.results import ResultStore

if TYPE_CHECKING:
    from fleetrank.orchestrator.store.health.verify import Examined

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
    repair: Annotated[
        bool, typer.Option(help="Restore damaged data from its second copy.")
    ] = False,
    now: Now = False,
    as_json: AsJson = False,
) -> None:
    """Check every row and compare the Parquet values with the journal."""
    from fleetrank.orchestrator.store.health.repair import repair_sweep
    from fleetrank.orchestrator.store.health.verify import Fault, examine

    store = ResultStore(current().workspace.results)
    read_exclusions(store.root)  # raises for damaged ones
    faults: list[Fault] = []
    rows: list[dict[str, object]] = []
    chosen = _verified_sweeps(store, sweeps)
    parts = [path for one in chosen for path in store.parts_folder(one).glob(PARTS)]
    with turn_for(parts, work=Work.CHECKSUMS, now=now):
        for sweep_id in chosen:
            done: Sequence[str] = ()
            if repair:
                with store.lease(sweep_id), host_turn("results verify"):
                    done = repair_sweep(store, sweep_id)
            pause_between_steps()
            found = examine(store, sweep_id)
            _print_checked(sweep_id, done, found, as_json)
            rows.append(
                {
                    "sweep_id": sweep_id,
                    "repaired": list(done),
                    "faults": [fault.text for fault in found.faults],
                    "n_unchecked": found.n_unchecked,
                }
            )
            faults += found.faults
    damages = [] if sweeps else list(damaged_side_files(store.root, SIDE_TABLES))
    _print_side(store, damages, as_json)
    faults += [Fault(text=one.message, remedy=one.remedy) for one in damages]
    rows += [
        {"sweep_id": None, "repaired": [], "faults": [one.message], "n_unchecked": 0}
        for one in damages
    ]
    if as_json:
        print_table(rows, as_json)
    if faults:
        raise StoreError(
            f"{count_of(len(faults), 'fault')} in the stored results",
            "\n  -> ".join(dict.fromkeys(fault.remedy for fault in faults)),
        )


def _verified_sweeps(store: ResultStore, sweeps: list[str] | None) -> list[str]:
    """As `_known`; empty for a workspace that has rows of side tables only."""
    has_side = any(side_files(store.root, name) for name in SIDE_TABLES)
    return _known(store, sweeps) if sweeps or store.sweep_ids() or not has_side else []


def _print_side(store: ResultStore, damages: Sequence[DamagedPartError], as_json: bool) -> None:
    for name in SIDE_TABLES:
        if not as_json and (n_files := len(side_files(store.root, name))):
            folder = str(side_folder(store.root, name))
            n_faults = sum(one.message.startswith(folder) for one in damages)
            print(
                f"{name}: {count_of(n_faults, 'fault') if n_faults else 'ok'}, "
                f"{count_of(n_files, 'file')}"
            )
    for one in damages:
        print(one.message, file=sys.stderr)


def _print_checked(sweep_id: str, done: Sequence[str], found: "Examined", as_json: bool) -> None:
    if not as_json:
        for text in (*done, _verdict(found)):
            print(f"{sweep_id}: {text}")
    for fault in found.faults:
        print(f"{sweep_id}: {fault.text}", file=sys.stderr)


def _verdict(found: "Examined") -> str:
    verdict = count_of(len(found.faults), "fault") if found.faults else "ok"
    if found.n_unchecked:
        rows = count_of(found.n_unchecked, "stored row")
        return f"{verdict}, {rows} without a checksum, from an older fleetrank"
    return verdict


def compact(sweeps: SweepIds = None, as_json: AsJson = False) -> None:
    """Write journal rows to Parquet, merge its files, pack the journal.

    A damaged Parquet part is rebuilt from the journal.
    """
    from fleetrank.orchestrator.store.health.repair import require_whole_parts

    store = ResultStore(current().workspace.results)
    rows: list[dict[str, object]] = []
    for sweep_id in chosen_sweeps(store, sweeps):
        with store.lease(sweep_id), host_turn("results compact"):
            done = require_whole_parts(store, sweep_id)
            store.publish(sweep_id)
            n_parts = store.compact(sweep_id)
            is_packed = store.pack_journal(sweep_id)
        rows.append(
            {"sweep_id": sweep_id, "rebuilt": list(done), "n_parts_before": n_parts,
             "n_parts": min(n_parts, 1), "is_journal_packed": is_packed}
        )  # fmt: skip
        if not as_json:
            print("".join(f"{sweep_id}: {text}\n" for text in done), end="")
            packed = ", journal packed" if is_packed else ""
            print(f"{sweep_id}: {count_of(n_parts, 'part')} merged into {min(n_parts, 1)}{packed}")
    if as_json:
        print_table(rows, as_json)
