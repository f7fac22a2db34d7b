"""What disturbed a cell: causes that its rows record, and how far it is from its history.

A repeat is measured again for one of these two, never because it is slow: what is replaced must not
depend on the side to which a value errs.
"""

import polars as pl

from fleetrank.analysis.stored.cell_values import TAKEN_SHARE, cell_values, is_noisy, taken_share
from fleetrank.analysis.stored.chosen_workload import WORKLOAD
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.load import last_attempts
from fleetrank.foundation.vocabulary import Flag

OTHERS = (Flag.BUSY_HOST, Flag.PREEMPTED, Flag.BESIDE_READING, Flag.SHARED_DEVICE)
"""Flags of work beside the measurement."""
_CAUSES = (*OTHERS, Flag.NICED, Flag.CPU_QUOTA, Flag.THROTTLED, Flag.HOT)
CHANGED = 1.5
"""Factor beyond which a figure is not what its cell was in other sweeps: sessions of one shared
host differed by 35 %."""
MIN_CLOCK = 0.85
"""Part of the usual clock below which a device runs at another one, as of the flag `throttled`."""
_REPEAT = ("cell_key", "repeat")
_SAME = ("model", "platform_key", WORKLOAD, "card_sha256", "weights_id", STATISTIC)


def has_flag(*flags: Flag) -> pl.Expr:
    """Whether a row, or a repeat of a cell, has one of these flags."""
    is_one = pl.col("flags").list.eval(pl.element().is_in(flags)).list.any()
    return is_one.fill_null(value=False)


def far_from_history(cells: pl.DataFrame, attempts: pl.LazyFrame) -> pl.DataFrame:
    """The cells of one sweep that are far from what they were in other sweeps of these devices.

    Adds `usual_ns`, `n_sweeps` and `factor`, and `clock_mhz` and `usual_mhz` where they are known.

    Args:
        cells: as `cell_values` gives them.
        attempts: of all sweeps.
    """
    is_here = pl.col("platform_key").is_in(cells["platform_key"].to_list())
    is_own = pl.col("sweep_id").is_in(cells["sweep_id"].to_list())
    medians = last_attempts(attempts.filter(is_here)).group_by(*_SAME, "sweep_id").agg(
        pl.col("latency_p50_ns", "clock_mhz_after").median()
    ).collect()  # fmt: skip
    usual = (
        medians.filter(~is_own)
        .group_by(_SAME)
        .agg(
            pl.col("latency_p50_ns").median().alias("usual_ns"),
            pl.col("clock_mhz_after").median().alias("usual_mhz"),
            pl.len().alias("n_sweeps"),
        )
    )
    own = medians.filter(is_own).select(*_SAME, pl.col("clock_mhz_after").alias("clock_mhz"))
    factor = pl.col("latency_ns") / pl.col("usual_ns")
    return (
        cells.join(usual, on=_SAME, nulls_equal=True)
        .join(own, on=_SAME, how="left", nulls_equal=True)
        .with_columns(factor=factor)
        .filter((factor > CHANGED) | (factor < 1 / CHANGED))
    )


def disturbed_repeats(attempts: pl.LazyFrame, sweep_id: str) -> set[tuple[str, int]]:
    """The repeats to measure again, as `(cell_key, repeat)`.

    They are of cells that are noisy, or far from their history. If the repeats of such a cell that
    record no cause are two or more, agree, and are near the history, only the others are measured
    again; else all are. With a repeat all that took turns with it are.

    Args:
        attempts: of all sweeps.
        sweep_id: the sweep whose repeats are asked for.
    """
    rows = last_attempts(attempts.filter(pl.col("sweep_id") == sweep_id))
    has_cause = has_flag(*_CAUSES) | (taken_share() > TAKEN_SHARE).fill_null(value=False)
    bad = _bad_cells(rows, attempts)
    rest = cell_values(rows.filter(~has_cause)).filter(pl.col("n_repeats") > 1)
    trusted = set(rest["cell_key"]) - _bad_cells(rows.filter(~has_cause), attempts)
    is_bad, is_trusted = (pl.col("cell_key").is_in(list(some)) for some in (bad, trusted))
    is_again = is_bad & (has_cause | ~is_trusted)
    again = rows.filter(is_again).select(*_REPEAT, "round_id").collect()
    rounds = again["round_id"].drop_nulls().to_list()
    beside = rows.select(*_REPEAT, "round_id").filter(pl.col("round_id").is_in(rounds))
    return {*again.select(_REPEAT).iter_rows(), *beside.select(_REPEAT).collect().iter_rows()}


def _bad_cells(rows: pl.LazyFrame, attempts: pl.LazyFrame) -> set[str]:
    """Keys of the cells that are noisy or far from their history."""
    cells = cell_values(rows)
    return {
        *cells.filter(is_noisy())["cell_key"],
        *far_from_history(cells, attempts)["cell_key"],
    }
