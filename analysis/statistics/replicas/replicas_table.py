"""Table `replicas`: what several processes of one model do together, against one process."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.equivalence import MIN_FOR_VARIANCE
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.replicas.replica_sets import (
    ELSEWHERE,
    FAILED,
    MIN_OVERLAP,
    NO_OVERLAP,
    PLACE,
    newest_runs,
    over_one,
    set_figures,
)
from fleetrank.analysis.stored.cell_notes import banners, with_one_cell
from fleetrank.analysis.stored.cells_table import MIN_REPEATS, interval_depth
from fleetrank.analysis.stored.side.replica_runs import REPLICA_RUNS
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.process.core_use import CoreUse
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.wording import count_of

_FLOATS = (
    "items_per_s", "items_low_per_s", "items_high_per_s", "over_one", "over_one_low",
    "over_one_high", "latency_p50_ms", "latency_over_one", "memory_mib", "j_per_item", "overlap",
)  # fmt: skip
_ORDER = (
    *PLACE, "n_replicas", "core_use", "items_per_s", "over_one", "over_one_low", "over_one_high",
    "than_one", "latency_p50_ms", "latency_over_one", "overlap", "memory_mib", "j_per_item",
    "item", "items_low_per_s", "items_high_per_s", "n_sets", "n_left_out", "flags", "reason",
)  # fmt: skip
_RATE = (
    "items_per_s: system throughput, that is items of all processes over the time from the first "
    "start to the last end; median over sets. An item is a sample or a token. Inputs are ready and "
    "outputs are dropped: no queue and no network. The interval is of the median over sets by "
    "order statistics, from 5 sets on."
)
_OVER_ONE = (
    "over_one: items_per_s over that of one process, by geometric means over sets, with a 95 % "
    "interval from 3 sets a side on (Welch's t on logarithms). than_one: more or less if the "
    "interval leaves 1 out, otherwise not shown. latency_over_one: the latency of one inference "
    "in the set over that of one process alone."
)
_HOLDS = (
    f"overlap: the smallest share of a set's time in which all of its processes ran. A set with "
    f"less than {100 * MIN_OVERLAP:.0f} % (flag {NO_OVERLAP}), with a process on other cores or "
    f"another device than asked for (flag {ELSEWHERE}), or with a process that failed (flag "
    f"{FAILED}) is left out of every figure, and n_left_out counts it. placement_unknown: the "
    "driver does not list the processes of the device, so that their place is not proved."
)
_CORES = (
    "core_use: own, each process has its own cores; siblings, hardware threads of one core have "
    "different processes; shared, fewer CPUs than threads, so all processes use all of them; free, "
    "the system places them."
)
_MEMORY = (
    "memory_mib: sum of the peaks of the processes. Pages that they share count in each. "
    "j_per_item: energy of the whole device, counted once for the set."
)


def replicas_table(session: Session) -> Table:
    """One row for each model, platform, workload and number of processes.

    Raises:
        NoDataError: no selected cell was run in several processes.
    """
    runs, cells, left_out = _selected(session)
    sets = set_figures(runs)
    rows = [row for _, place in sets.group_by(PLACE, maintain_order=True) for row in _rows(place)]
    frame = pl.DataFrame(rows, infer_schema_length=None).cast(dict.fromkeys(_FLOATS, pl.Float64))
    return Table(
        title="Several processes on one device",
        frame=frame.select(_ORDER).sort(*PLACE, "n_replicas"),
        notes=(*banners(cells), _counted(sets), *left_out, *_sharing(sets), *_warning(sets)),
        explanation=(_RATE, _OVER_ONE, _HOLDS, _CORES, _MEMORY),
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
            "run it: `fleetrank replicas MODEL`, or `replicas: [1, 2, 4]` in a sweep",
        )
    return chosen_runs, cells.join(chosen_runs, on=PLACE, how="semi"), left_out


def _rows(sets: pl.DataFrame) -> Iterator[dict[str, object]]:
    """The rows of one model, platform and workload."""
    alone = sets.filter(pl.col("holds") & (pl.col("n_replicas") == 1))
    for (n_replicas,), part in sets.group_by("n_replicas", maintain_order=True):
        held = part.filter("holds")
        low, high = _interval(_values(held, "items_per_s"))
        latency_ns, alone_ns = (_median(some, "latency_ns") for some in (held, alone))
        yield {
            **dict(zip(PLACE, part.select(PLACE).row(0), strict=True)),
            "n_replicas": n_replicas,
            "item": part["item"][0],
            "items_per_s": _median(held, "items_per_s"),
            "items_low_per_s": low,
            "items_high_per_s": high,
            **_against_one(held, alone),
            "latency_p50_ms": _over(latency_ns, NS_PER_MS),
            "latency_over_one": _over(latency_ns, alone_ns),
            "memory_mib": _over(_median(held, "peak_memory_bytes"), BYTES_PER_MIB),
            "j_per_item": _median(held, "j_per_item"),
            "overlap": part["overlap"].min(),
            "core_use": next(iter(part["core_use"].drop_nulls()), None),
            "n_sets": held.height,
            "n_left_out": part.height - held.height,
            "flags": sorted(set(part["flags"].explode().drop_nulls())),
            "reason": _reason(held, alone),
        }


def _against_one(held: pl.DataFrame, alone: pl.DataFrame) -> dict[str, object]:
    found = over_one(_values(alone, "items_per_s"), _values(held, "items_per_s"))
    is_one = not held.is_empty() and held["n_replicas"][0] == 1
    if found.low is None or found.high is None or is_one:
        verdict = None
    elif found.low > 1 or found.high < 1:
        verdict = "more" if found.low > 1 else "less"
    else:
        verdict = "not shown"
    return {
        "over_one": found.ratio,
        "over_one_low": None if is_one else found.low,
        "over_one_high": None if is_one else found.high,
        "than_one": verdict,
    }


def _reason(held: pl.DataFrame, alone: pl.DataFrame) -> str | None:
    """Why figures are missing."""
    if held.is_empty():
        return "no set holds: see flags"
    if alone.is_empty():
        return "no set of one process to compare with"
    n = min(held.height, alone.height)
    if n < MIN_FOR_VARIANCE:
        return f"n = {n}: no interval of over_one below {MIN_FOR_VARIANCE} sets"
    return None


def _interval(rates: Floats) -> tuple[float | None, float | None]:
    if rates.size < MIN_REPEATS:
        return None, None
    ordered, depth = np.sort(rates), interval_depth(rates.size)
    return float(ordered[depth]), float(ordered[rates.size - 1 - depth])


def _values(sets: pl.DataFrame, name: str) -> Floats:
    return sets[name].drop_nulls().to_numpy().astype(float)


def _median(sets: pl.DataFrame, name: str) -> float | None:
    values = _values(sets, name)
    return float(np.median(values)) if values.size else None


def _over(value: float | None, divisor: float | None) -> float | None:
    return None if value is None or not divisor else value / divisor


def _counted(sets: pl.DataFrame) -> str:
    n_left_out = sets.filter(~pl.col("holds")).height
    left_out = f", {n_left_out} of them left out" if n_left_out else ""
    return f"{count_of(sets.height, 'set')} of processes that started together{left_out}."


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
