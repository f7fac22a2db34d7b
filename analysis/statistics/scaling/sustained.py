"""Part `sustained`: the throughput of back-to-back inferences over a given time."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.chosen_workload import known_workload
from fleetrank.analysis.stored.exclusions import exclusion_notes
from fleetrank.analysis.stored.load import IS_SUSTAINED, valid_attempts
from fleetrank.analysis.stored.scope import of_every_workload
from fleetrank.analysis.tables.table import CellRow, Table, explained, frame_of
from fleetrank.foundation.units import NS_PER_S

FloatArray = NDArray[np.float64]
SLOWED_SHARE = 0.9
"""A window of the run with less than this share of the first third's rate is slower than before.

Ten per cent: a governor's usual steps are larger, and the noise of a window of many runs smaller.
"""
_WINDOWS = 30
_MIN_RUNS = 6
_SUSTAINED_FACTS = ("model", "platform_key", "workload", "repeat", "origin", "device")
_BESIDE = (
    "clock_mhz_before", "clock_mhz_after", "temp_c_before", "temp_c_after", "power_mw_before",
    "power_mw_after", "throttle_reasons_after",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Thirds:
    """Rates of one sustained run, in runs a second.

    Attributes:
        slowed_after_s: the start of the first window from which on every window is slow; `None` if
            the run did not become slower, or has few runs.
    """

    first_per_s: float | None
    last_per_s: float | None
    slowed_after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained(CellRow):
    """One repeat with runs for a given time; `None` is not known, or has its `reason`."""

    workload: str
    repeat: int
    n_runs: int | None
    item: str
    duration_s: float | None
    items_per_s: float | None
    first_third_per_s: float | None
    last_third_per_s: float | None
    drift: float | None
    slowed_after_s: float | None
    throttled_after_s: float | None
    basis: str | None
    reason: str | None


def thirds(samples_ns: FloatArray) -> Thirds:
    """Compares first and last third of the time of a run; samples (n,) in order, above 0.

    A run counts where it ends. All `None` with fewer than 6 runs.
    """
    if len(samples_ns) < _MIN_RUNS:
        return Thirds(first_per_s=None, last_per_s=None, slowed_after_s=None)
    ends_ns = np.cumsum(samples_ns)
    total_ns = float(ends_ns[-1])
    n_first = max(int(np.searchsorted(ends_ns, total_ns / 3, side="right")), 1)
    n_before = int(np.searchsorted(ends_ns, 2 * total_ns / 3, side="right"))
    n_before = min(n_before, len(ends_ns) - 1)
    start_ns = float(ends_ns[n_before - 1]) if n_before else 0.0
    first = n_first / float(ends_ns[n_first - 1]) * NS_PER_S
    last = (len(ends_ns) - n_before) / (total_ns - start_ns) * NS_PER_S
    slowed_s = _slowed_after_s(ends_ns / NS_PER_S, first)
    return Thirds(first_per_s=first, last_per_s=last, slowed_after_s=slowed_s)


def windows(ends_s: FloatArray, n_windows: int = _WINDOWS) -> tuple[FloatArray, FloatArray]:
    """Starts in seconds and rates in runs a second of windows of whole runs, (n,) each.

    Windows have about equal durations, and each begins and ends with a run, so that a long run
    does not look like a window without any. There are at most as many windows as runs.
    """
    wanted = np.linspace(0, float(ends_s[-1]), n_windows + 1)[1:]
    last = np.unique(np.minimum(np.searchsorted(ends_s, wanted), len(ends_s) - 1))
    closing = ends_s[last]
    starts = np.concatenate([[0.0], closing[:-1]])
    counts = np.diff(np.concatenate([[-1], last]))
    return starts, counts / (closing - starts)


def _slowed_after_s(ends_s: FloatArray, first_per_s: float) -> float | None:
    starts, rates = windows(ends_s)
    is_slow = rates < SLOWED_SHARE * first_per_s
    if not is_slow[-1]:
        return None
    fast = np.flatnonzero(~is_slow)
    return float(starts[fast[-1] + 1]) if fast.size else float(starts[0])


@once_a_session
def sustained_rows(session: Session) -> pl.DataFrame:
    """The repeats of sustained runs, one row each, with their samples, sorted.

    Raises:
        NoDataError: no selected row has runs for a given time.
    """
    # Every workload: a curve of one does not disturb that of another.
    chosen = [session.of_workload(name) for name in session.chosen_workloads]
    parts = [
        valid_attempts(part.attempts.filter(IS_SUSTAINED))
        .select(
            *(name for name in _SUSTAINED_FACTS if name != "workload"),
            known_workload().alias("workload"),
            pl.coalesce("tokens_per_inference", "batch").alias("items"),
            pl.when(pl.col("tokens_per_inference").is_null())
            .then(pl.lit("sample")).otherwise(pl.lit("token")).alias("item"),
            "samples_ns", "sample_count", "latency_mean_ns", "sustained_ns", "throttled_after_ns",
            *_BESIDE,
        )
        .collect()
        for part in chosen
    ]  # fmt: skip
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if rows.is_empty():
        raise NoDataError(
            "no selected row has sustained runs",
            "measure with `measure: {min_time_s: 60}` in the sweep file",
        )
    return rows.sort("model", "platform_key", "workload", "repeat")


def sustained_table(session: Session) -> Table:
    """One row for each repeat with runs for a given time.

    Raises:
        NoDataError: there is none.
    """
    table = sustained_as_table(sustained_rows(session))
    rows = of_every_workload(session.frame, session.selection).filter(
        known_workload().is_in(session.chosen_workloads), IS_SUSTAINED
    )
    return replace(table, notes=(*table.notes, *exclusion_notes(rows)))


def sustained_as_table(rows: pl.DataFrame) -> Table:
    """The table of rows that `sustained_rows` gives."""
    frame = frame_of(Sustained, map(_sustained, rows.iter_rows(named=True)))
    frame = frame.with_columns(rows.select(_BESIDE))
    return Table(
        title="Sustained throughput",
        frame=frame.select(pl.exclude("reason"), "reason"),
        notes=(*banners(rows), f"{rows.height} sustained runs, one row each."),
        explanation=explained(
            "scaling/sustained", {"n_windows": _WINDOWS, "slowed_percent": 100 * SLOWED_SHARE}
        ),
    )


def _sustained(row: dict[str, Any]) -> Sustained:
    samples = np.asarray(row["samples_ns"] or [], dtype=float)
    items, n_runs = row["items"], row["sample_count"]
    wall_s, basis = _duration_s(row, samples)
    parts = thirds(samples[samples > 0])
    first, last = (
        None if rate is None or items is None else rate * items
        for rate in (parts.first_per_s, parts.last_per_s)
    )
    is_counted = wall_s and items is not None and n_runs is not None
    throttled_ns, reason = row["throttled_after_ns"], None
    if samples.size == 0:
        reason = "the tool gives no samples: no drift"
    elif samples.size < _MIN_RUNS:
        reason = f"n = {samples.size} runs: no thirds below {_MIN_RUNS}"
    return Sustained(
        model=row["model"],
        platform_key=row["platform_key"],
        workload=row["workload"],
        repeat=row["repeat"],
        item=row["item"],
        n_runs=n_runs,
        duration_s=wall_s,
        items_per_s=items * float(n_runs) / wall_s if is_counted else None,
        first_third_per_s=first,
        last_third_per_s=last,
        drift=None if first is None or last is None else last / first - 1,
        slowed_after_s=parts.slowed_after_s,
        throttled_after_s=None if throttled_ns is None else throttled_ns / NS_PER_S,
        basis=basis,
        reason=reason,
    )


def _duration_s(row: dict[str, Any], samples: FloatArray) -> tuple[float | None, str | None]:
    """How long the runs took, and what that is; `None` without any figure."""
    if row["sustained_ns"] is not None:
        return row["sustained_ns"] / NS_PER_S, "wall clock"
    mean_ns, count = row["latency_mean_ns"], row["sample_count"]
    if mean_ns is None or count is None:
        return None, None
    return mean_ns * count / NS_PER_S, "sum of runs" if samples.size else "count x mean of a tool"
