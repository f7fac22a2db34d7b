"""`fleetrank results exclude`: excludes stored rows from all figures, and undoes it."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from fleetrank.analysis.stored.exclusions import read_exclusions
from fleetrank.analysis.stored.part_list import part_files
from fleetrank.foundation.wording import did_you_mean
from fleetrank.foundation.workload import IMAGE
from fleetrank.orchestrator.cli.context import Now, current
from fleetrank.orchestrator.cli.listing import AsJson, print_table
from fleetrank.orchestrator.cli.reading_turn import Work, turn_for
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.store.results import ResultStore

if TYPE_CHECKING:
    import polars as pl

    from fleetrank.analysis.stored.exclusions import Exclusion

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
    from fleetrank.orchestrator.store.small_files import exclude as store_exclusion

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
    from fleetrank.orchestrator.store.small_files import take_back

    taken = take_back(store.root, number)
    if as_json:
        print_table([asdict(taken)], as_json)
        return
    print(f"exclusion {taken.number} removed: {_what(taken)} is included again")


def _list(store: ResultStore, as_json: bool, *, now: bool) -> None:

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
    from fleetrank.analysis.stored.exclusions import covers
    from fleetrank.analysis.stored.load import load_measurements

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
    from fleetrank.analysis.stored.name_patterns import fits

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
