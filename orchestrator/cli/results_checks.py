"""`fleetrank results verify`: checks stored rows, and restores what has an undamaged copy."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.analysis.stored.selection import read_exclusions
from fleetrank.analysis.stored.sweep_record import NO_SWEEP, PARTS, part_files, published_sweeps
from fleetrank.foundation.errors import count_of, did_you_mean
from fleetrank.foundation.inputs import IMAGE
from fleetrank.foundation.lease import pause_between_steps
from fleetrank.orchestrator.cli.context import current, host_turn, readable_workspace
from fleetrank.orchestrator.cli.listing import AsJson, print_table
from fleetrank.orchestrator.cli.reading_turn import Now, Work, turn_for
from fleetrank.orchestrator.errors import NothingToDoError, StoreError, UsageError
from fleetrank.orchestrator.progress import counted_from_one
from fleetrank.orchestrator.store.reparse import Reparsed, reparse_sweep, store_reparsed
from fleetrank.orchestrator.store.results import ResultStore

if TYPE_CHECKING:
    import polars as pl

    from fleetrank.analysis.stored.selection import Exclusion

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
    reparse: Annotated[
        bool,
        typer.Option(
            "--reparse",
            help="Parse stored logs of phones again instead, and show what today's parsers change; "
            "with --repair the changed results are stored as new attempts.",
        ),
    ] = False,
    now: Now = False,
    as_json: AsJson = False,
) -> None:
    """Check journals and parts by checksum, rows by their samples."""
    if reparse:
        _reparse(sweeps, is_stored=repair, as_json=as_json)
        return
    from fleetrank.orchestrator.store.health import Fault, examine, repair_sweep

    store = ResultStore(readable_workspace().results)
    read_exclusions(store.root)  # raises for damaged ones
    faults: list[Fault] = []
    rows: list[dict[str, object]] = []
    has_others = NO_SWEEP in published_sweeps(store.root)
    chosen = _known(store, sweeps) if sweeps or store.sweep_ids() or not has_others else []
    chosen += [NO_SWEEP] if has_others and not sweeps else []
    parts = [path for one in chosen for path in store.parts_folder(one).glob(PARTS)]
    with turn_for(parts, work=Work.CHECKSUMS, now=now):
        for sweep_id in chosen:
            done: list[str] = []
            if repair:
                with store.lease(sweep_id), host_turn("results verify"):
                    done = repair_sweep(store, sweep_id)
            pause_between_steps()
            found = examine(store, sweep_id)
            name = None if sweep_id == NO_SWEEP else sweep_id
            if not as_json:
                verdict = count_of(len(found), "fault") if found else "ok"
                print("".join(f"{name or _WITHOUT}: {text}\n" for text in (*done, verdict)), end="")
            for fault in found:
                print(f"{name or _WITHOUT}: {fault.text}", file=sys.stderr)
            texts = [fault.text for fault in found]
            rows.append({"sweep_id": name, "repaired": done, "faults": texts})
            faults += found
    if as_json:
        print_table(rows, as_json)
    if faults:
        raise StoreError(
            f"{count_of(len(faults), 'fault')} in the stored results",
            "\n  -> ".join(dict.fromkeys(fault.remedy for fault in faults)),
        )


_WITHOUT = "rows without a sweep"


def _reparse(sweeps: list[str] | None, *, is_stored: bool, as_json: bool) -> None:
    store = ResultStore(readable_workspace().results)
    read = _reparse_and_store if is_stored else reparse_sweep
    items = [item for sweep_id in chosen_sweeps(store, sweeps) for item in read(store, sweep_id)]
    if not items:
        raise NothingToDoError(
            "no stored attempt has a raw log", "only measurements on phones have one"
        )
    lines = [line for item in items for line in _changes(item)]
    print_table(lines if as_json else [counted_from_one(line) for line in lines], as_json)
    if not as_json:
        n_new = sum(item.new is not None for item in items)
        end = "stored as new attempts" if is_stored else "nothing stored; --repair stores them"
        changed = count_of(n_new, "attempt changes", "attempts change")
        print(f"{count_of(len(items), 'log')} read, {changed}: {end}")


def _reparse_and_store(store: ResultStore, sweep_id: str) -> list[Reparsed]:
    """Reads while holding the lease, so that a resume cannot use the same attempt number."""
    with store.lease(sweep_id), host_turn("results verify --reparse"):
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


# `fleetrank results exclude`: excludes stored rows from all figures, and undoes it.

_NAMES = ("model", "platform_key", "workload")
_NAMED = 6
"""Models that a remedy lists; a longer list would be unreadable."""


def exclude(
    sweep: Annotated[
        str | None, typer.Argument(help="The sweep (default: list exclusions).")
    ] = None,
    *,
    reason: Annotated[
        str | None, typer.Option(help="Reason, one line; printed under every table.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Only this model, workload, platform, 'MODEL on PLATFORM' or 'MODEL WORKLOAD on "
            "PLATFORM'; * matches anything.",
        ),
    ] = None,
    undo: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Remove this exclusion.")
    ] = None,
    now: Now = False,
    as_json: AsJson = False,
) -> None:
    """Exclude a sweep, or part of it, from all figures.

    Its rows stay stored, and the exclusion can be removed again.

    Without a sweep, lists the exclusions and the number of rows that each covers.
    """
    store = ResultStore(current().workspace.results)
    if undo is not None:
        _refuse_beside("--undo", {"a sweep": sweep, "--reason": reason, "--only": only})
        _take_back(store, undo, as_json)
    elif sweep is not None:
        _exclude(store, sweep, only, reason, as_json, now=now)
    else:
        _refuse_beside("the list", {"--reason": reason, "--only": only})
        _list(store, as_json, now=now)


def _refuse_beside(what: str, others: dict[str, str | None]) -> None:
    if given := [name for name, value in others.items() if value is not None]:
        raise UsageError(
            f"{what} cannot be combined with {given[0]}",
            'to exclude: SWEEP --reason "..."; to undo: --undo NUMBER; to list: no arguments',
        )


def _exclude(
    store: ResultStore,
    sweep: str,
    pattern: str | None,
    reason: str | None,
    as_json: bool,
    *,
    now: bool,
) -> None:
    from fleetrank.orchestrator.store.exclusions import exclude as store_exclusion

    store.sweep_record(sweep)  # raises for an unknown sweep
    if pattern is not None:
        parts = part_files(store.root, sweep)
        with turn_for(parts, work=Work.ROWS, now=now):
            _refuse_strange(store, sweep, pattern)
    made = store_exclusion(store.root, sweep, pattern, reason or "")
    if as_json:
        print_table([asdict(made)], as_json)
        return
    print(f"exclusion {made.number}: {_what(made)} is now left out of all figures")
    print(f"undo with: fleetrank results exclude --undo {made.number}")


def _take_back(store: ResultStore, number: int, as_json: bool) -> None:
    from fleetrank.orchestrator.store.exclusions import take_back

    taken = take_back(store.root, number)
    if as_json:
        print_table([asdict(taken)], as_json)
        return
    print(f"exclusion {taken.number} removed: {_what(taken)} is included again")


def _list(store: ResultStore, as_json: bool, *, now: bool) -> None:
    from fleetrank.analysis.stored.selection import read_exclusions

    entries = read_exclusions(store.root).entries
    parts = [path for sweep_id in store.sweep_ids() for path in part_files(store.root, sweep_id)]
    with turn_for(parts, work=Work.ROWS, now=now):
        counts = _count(store, entries)
    rows = [asdict(one) | {"n_rows": n} for one, n in zip(entries, counts, strict=True)]
    print_table(rows, as_json)


def _count(store: ResultStore, entries: "Sequence[Exclusion]") -> list[int]:
    """The number of published rows each covers; 0 for a deleted sweep."""
    from fleetrank.analysis.errors import NoDataError
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements
    from fleetrank.analysis.stored.selection import covers

    if not entries:
        return []
    try:
        frame = load_measurements(store.root, origins=ORIGINS)
    except NoDataError:
        return [0] * len(entries)
    counts = frame.select(covers(one).sum().alias(str(one.number)) for one in entries)
    return [int(n) for n in counts.collect().row(0)]


def _refuse_strange(store: ResultStore, sweep: str, pattern: str) -> None:
    """Searches published rows, then rows that are only in the journal of a running sweep."""
    from fleetrank.analysis.stored.selection import fits

    seen = _published_names(store, sweep)
    if seen.filter(fits(pattern)).is_empty():
        seen = seen.vstack(_journal_names(store, sweep)).unique()
    if seen.filter(fits(pattern)).is_empty():
        known = sorted(seen["model"].drop_nulls().unique())
        raise UsageError(
            f"no stored row of {sweep} has the model, workload, platform or cell '{pattern}'",
            did_you_mean(pattern, [*known, *seen["platform_key"].drop_nulls()])
            + f"its models are {', '.join(known[:_NAMED]) or 'not stored yet'}; "
            "one cell is 'MODEL on PLATFORM'; * in a name matches anything",
        )


def _published_names(store: ResultStore, sweep: str) -> "pl.DataFrame":
    import polars as pl

    from fleetrank.analysis.errors import NoDataError
    from fleetrank.analysis.stored.columns import ORIGINS
    from fleetrank.analysis.stored.load import load_measurements

    try:
        frame = load_measurements(store.root, sweep=sweep, origins=ORIGINS)
    except NoDataError:
        return pl.DataFrame(schema=dict.fromkeys(_NAMES, pl.String))
    return frame.select(_NAMES).unique().collect()


def _journal_names(store: ResultStore, sweep: str) -> "pl.DataFrame":
    import polars as pl

    rows = store.open_journal(sweep).rows()
    names = {tuple(str(row.get(name) or IMAGE) for name in _NAMES) for row in rows}
    return pl.DataFrame(sorted(names), schema=dict.fromkeys(_NAMES, pl.String), orient="row")


def _what(one: "Exclusion") -> str:
    return one.sweep_id if one.pattern is None else f"{one.pattern} of {one.sweep_id}"
