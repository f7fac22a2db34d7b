"""Table `sustained`: the throughput of back-to-back inferences over a given time."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.chosen_workload import known_workload
from fleetrank.analysis.stored.exclusions import exclusion_notes
from fleetrank.analysis.stored.load import IS_SUSTAINED, valid_attempts
from fleetrank.analysis.stored.scope import of_every_workload
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.units import NS_PER_S

FloatArray = NDArray[np.float64]

SLOWED_SHARE = 0.9
"""A window of the run with less than this share of the first third's rate is slower than before.

Ten per cent: a governor's usual steps are larger, and the noise of a window of many runs smaller.
"""
_WINDOWS = 30
_MIN_RUNS = 6
_FACTS = ("model", "platform_key", "workload", "repeat", "origin", "device")
_BESIDE = (
    "clock_mhz_before", "clock_mhz_after", "temp_c_before", "temp_c_after", "power_mw_before",
    "power_mw_after", "throttle_reasons_after",
)  # fmt: skip
_RATE = (
    "items_per_s: items of all runs over the wall clock from the start of the first to the end of "
    "the last, with whatever time passed between them; an item is a sample or a token. Inputs are "
    "ready, outputs are dropped. Tools that print a summary state no wall clock: there it is the "
    "batch over their mean latency, and basis says so."
)
_DRIFT = (
    "first_third_per_s, last_third_per_s: rates of the first and last third of the time, by the "
    "sums of their runs; drift = last over first - 1, so -0.1 is ten per cent slower at the end."
)
_SLOWED = (
    f"slowed_after_s: the start of the first of {_WINDOWS} equal windows from which on every window"
    f" has less than {100 * SLOWED_SHARE:.0f} % of the first third's rate; empty if the end is not "
    "slower than that. throttled_after_s: the first moment that a phone allowed a core a lower "
    "clock; empty if it did not, and for devices whose clocks are not watched."
)
_BESIDE_MEANING = (
    "clocks, temperature, power: of the device before and after the runs. A null is a sensor that "
    "the device does not have."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thirds:
    """Rates of one sustained run, in runs a second.

    Attributes:
        slowed_after_s: see `_SLOWED`; `None` if the run did not become slower, or has few runs.
    """

    first_per_s: float | None
    last_per_s: float | None
    slowed_after_s: float | None


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
            *(name for name in _FACTS if name != "workload"),
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
    table = sustained_as_table(session.once(sustained_rows))
    rows = of_every_workload(session.frame, session.selection).filter(
        known_workload().is_in(session.chosen_workloads), IS_SUSTAINED
    )
    return replace(table, notes=(*table.notes, *exclusion_notes(rows)))


def sustained_as_table(rows: pl.DataFrame) -> Table:
    """The table of rows that `sustained_rows` gives."""
    frame = pl.DataFrame(
        [_figures(row) for row in rows.iter_rows(named=True)], infer_schema_length=None
    ).cast(dict.fromkeys(_FLOATS, pl.Float64))
    frame = frame.with_columns(rows.select(_BESIDE)) if frame.height else frame
    return Table(
        title="Sustained throughput",
        frame=frame.select(*_ORDER, *_BESIDE, "reason"),
        notes=(*banners(rows), f"{rows.height} sustained runs, one row each."),
        explanation=(_RATE, _DRIFT, _SLOWED, _BESIDE_MEANING),
    )


_FLOATS = (
    "duration_s", "items_per_s", "first_third_per_s", "last_third_per_s", "drift",
    "slowed_after_s", "throttled_after_s",
)  # fmt: skip
_ORDER = (
    "model", "platform_key", "workload", "repeat", "n_runs", "item", *_FLOATS, "basis",
)  # fmt: skip


def _figures(row: dict[str, object]) -> dict[str, object]:
    samples = np.asarray(row["samples_ns"] or [], dtype=float)
    items = _number(row["items"])
    wall_s, basis = _duration_s(row, samples)
    n_runs = row["sample_count"]
    parts = asdict(thirds(samples[samples > 0]))
    rate = None
    if wall_s and items is not None and n_runs is not None:
        rate = items * float(str(n_runs)) / wall_s
    first, last = (_times(parts[name], items) for name in ("first_per_s", "last_per_s"))
    throttled = _number(row["throttled_after_ns"])
    return {
        **{name: row[name] for name in ("model", "platform_key", "workload", "repeat", "item")},
        "n_runs": n_runs,
        "duration_s": wall_s,
        "items_per_s": rate,
        "first_third_per_s": first,
        "last_third_per_s": last,
        "drift": None if first is None or last is None else last / first - 1,
        "slowed_after_s": parts["slowed_after_s"],
        "throttled_after_s": None if throttled is None else throttled / NS_PER_S,
        "basis": basis,
        "reason": _reason(samples),
    }


def _duration_s(row: dict[str, object], samples: FloatArray) -> tuple[float | None, str | None]:
    """How long the runs took, and what that is; `None` without any figure."""
    if (wall_ns := _number(row["sustained_ns"])) is not None:
        return wall_ns / NS_PER_S, "wall clock"
    mean_ns, count = _number(row["latency_mean_ns"]), _number(row["sample_count"])
    if mean_ns is None or count is None:
        return None, None
    return mean_ns * count / NS_PER_S, "sum of runs" if samples.size else "count x mean of a tool"


def _reason(samples: FloatArray) -> str | None:
    if samples.size == 0:
        return "the tool gives no samples: no drift"
    if samples.size < _MIN_RUNS:
        return f"n = {samples.size} runs: no thirds below {_MIN_RUNS}"
    return None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _times(rate: float | None, items: float | None) -> float | None:
    return None if rate is None or items is None else rate * items
