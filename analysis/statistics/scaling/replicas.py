"""Part `replicas` of table `scaling`: several processes of one model at once, against one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import figures_of
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.scaling.replica_sets import (
    ELSEWHERE,
    FAILED,
    MIN_OVERLAP,
    NO_OVERLAP,
    PLACE,
    OverOne,
    newest_runs,
    over_one,
    set_figures,
)
from fleetrank.analysis.stored.cell_notes import banners, with_one_cell
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.analysis.stored.replica_runs import REPLICA_RUNS
from fleetrank.analysis.tables.table import CellRow, Table, explained
from fleetrank.foundation.core_use import CoreUse
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFigures(CellRow):
    """The sets of one size of one model, platform and workload; `None` has its `reason`."""

    workload: str
    n_replicas: int
    core_use: str | None
    items_per_s: float | None
    over_one: float | None
    over_one_low: float | None
    over_one_high: float | None
    than_one: str | None
    latency_p50_ms: float | None
    latency_over_one: float | None
    overlap: float | None
    memory_mib: float | None
    j_per_item: float | None
    item: str
    items_low_per_s: float | None
    items_high_per_s: float | None
    n_sets: int
    n_left_out: int
    flags: tuple[str, ...]
    reason: str | None


def replicas_table(session: Session) -> Table:
    """One row for each model, platform, workload and number of processes.

    Raises:
        NoDataError: no selected cell was run in several processes.
    """
    runs, cells, left_out = _selected(session)
    sets = set_figures(runs)
    places = sets.group_by(PLACE, maintain_order=True)
    rows = [row for _, place in places for row in _rows(place)]
    rows.sort(key=lambda one: (one.model, one.platform_key, one.workload, one.n_replicas))
    n_left_out = sets.filter(~pl.col("holds")).height
    void = f", {n_left_out} of them left out" if n_left_out else ""
    counted = f"{count_of(sets.height, 'set')} of processes that started together{void}."
    return Table.of(
        ReplicaFigures,
        rows,
        title="Several processes on one device",
        notes=(*banners(cells), counted, *left_out, *_sharing(sets), *_warning(sets)),
        explanation=explained(
            "scaling/replicas",
            {
                "overlap_percent": 100 * MIN_OVERLAP,
                "no_overlap": NO_OVERLAP,
                "elsewhere": ELSEWHERE,
                "failed": FAILED,
            },
        ),
    )


def _selected(session: Session) -> tuple[pl.DataFrame, pl.DataFrame, tuple[str, ...]]:
    """The processes of the selected cells, these cells of every workload, and what is left out."""
    runs = newest_runs(session.side(REPLICA_RUNS))
    known = [name for name in session.chosen_workloads if name in set(runs["workload"])]
    found = [one for name in known if (one := session.cells_of(name)) is not None]
    columns = (*PLACE, "origin", "device", "cell_key")
    parts = [one.select(columns) for one in found]
    cells = pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    measured = cells.select(*PLACE, measured_cell="cell_key")
    chosen_runs, left_out = with_one_cell(runs.join(measured, on=PLACE, maintain_order="left"))
    if chosen_runs.is_empty():
        raise NoDataError(
            " ".join(("no selected model was run in several processes.", *left_out)).rstrip("."),
            "run it: `fleetrank run MODEL` with `replicas=1,2,4`, or `replicas: [1, 2, 4]` in a "
            "sweep",
        )
    return chosen_runs, cells.join(chosen_runs, on=PLACE, how="semi"), left_out


def _rows(sets: pl.DataFrame) -> Iterator[ReplicaFigures]:
    """The rows of one model, platform and workload."""
    alone = sets.filter(pl.col("holds") & (pl.col("n_replicas") == 1))
    for (n_replicas,), part in sets.group_by("n_replicas", maintain_order=True):
        held = part.filter("holds")
        low, high = _interval(_values(held, "items_per_s"))
        latency_ns, alone_ns = (_median(some, "latency_ns") for some in (held, alone))
        model, platform, workload = part.select(PLACE).row(0)
        against = over_one(_values(alone, "items_per_s"), _values(held, "items_per_s"))
        if not held.is_empty() and n_replicas == 1:
            against = replace(against, low=None, high=None)
        yield ReplicaFigures(
            model=model,
            platform_key=platform,
            workload=workload,
            n_replicas=int(str(n_replicas)),
            item=part["item"][0],
            items_per_s=_median(held, "items_per_s"),
            items_low_per_s=low,
            items_high_per_s=high,
            over_one=against.ratio,
            over_one_low=against.low,
            over_one_high=against.high,
            than_one=_than_one(against),
            latency_p50_ms=_over(latency_ns, NS_PER_MS),
            latency_over_one=_over(latency_ns, alone_ns),
            memory_mib=_over(_median(held, "peak_memory_bytes"), BYTES_PER_MIB),
            j_per_item=_median(held, "j_per_item"),
            overlap=min(part["overlap"].drop_nulls(), default=None),
            core_use=next(iter(part["core_use"].drop_nulls()), None),
            n_sets=held.height,
            n_left_out=part.height - held.height,
            flags=tuple(sorted(set(part["flags"].explode().drop_nulls()))),
            reason=_reason(held, alone),
        )


def _than_one(found: OverOne) -> str | None:
    if found.low is None or found.high is None:
        return None
    if found.low > 1 or found.high < 1:
        return "more" if found.low > 1 else "less"
    return "not shown"


def _reason(held: pl.DataFrame, alone: pl.DataFrame) -> str | None:
    """Why figures are missing."""
    if held.is_empty():
        return "no set holds: see flags"
    if alone.is_empty():
        return "no set of one process to compare with"
    if max(held.height, alone.height) < 2:
        return "n = 1: no interval of over_one from one set on each side"
    return None


def _interval(rates: Floats) -> tuple[float | None, float | None]:
    if rates.size < MIN_REPEATS:
        return None, None
    one = figures_of([rates], [False], [""])
    log, reach = float(one.logs[0]), float(one.reach[0])
    return math.exp(log - reach), math.exp(log + reach)


def _values(sets: pl.DataFrame, name: str) -> Floats:
    return sets[name].drop_nulls().to_numpy().astype(float)


def _median(sets: pl.DataFrame, name: str) -> float | None:
    values = _values(sets, name)
    return float(np.median(values)) if values.size else None


def _over(value: float | None, divisor: float | None) -> float | None:
    return None if value is None or not divisor else value / divisor


def _sharing(sets: pl.DataFrame) -> tuple[str, ...]:
    """One sentence about the sets whose processes have more threads than there are CPUs."""
    n = sets.filter(pl.col("core_use") == CoreUse.SHARED).height
    if not n:
        return ()
    return (f"In {count_of(n, 'set')} the processes have more threads than there are CPUs for "
            "them, and share all of them.",)  # fmt: skip


_WHY = {
    FAILED: "a process of it failed; `query` shows replica_error_message of replica_runs",
    NO_OVERLAP: f"its processes ran together for less than {100 * MIN_OVERLAP:.0f} % of its time; "
    "give more seconds, or fewer if a process reached its 500,000 inferences",
    ELSEWHERE: "a process computed on other cores or another device than asked for",
}


def _warning(sets: pl.DataFrame) -> tuple[str, ...]:
    """One sentence about the sets that are left out."""
    void = sets.filter(~pl.col("holds"))
    parts = []
    for flag, why in _WHY.items():
        n = void.filter(pl.col("flags").list.contains(flag)).height
        if n:
            parts.append(f"{count_of(n, 'set')} ({flag}: {why})")
    return (f"WARNING: not summed: {', '.join(parts)}.",) if parts else ()
