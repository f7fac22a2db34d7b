"""Table `components`: where the time of one inference goes, beside its latency."""

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.components.component_shares import (
    MODULE,
    PLACE,
    attributed_share,
    component_of,
    component_shares,
    macs_shares,
    valid_profiles,
)
from fleetrank.analysis.statistics.components.module_names import with_whole_names
from fleetrank.analysis.stored.cell_notes import with_one_cell
from fleetrank.analysis.stored.chosen_workload import known_workload
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.stored.side.component_times import COMPONENT_TIMES
from fleetrank.analysis.stored.side.module_macs import MODULE_MACS
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import DEPTH, SPLIT
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.wording import count_of

_MOST_DEPTH = 20
_ENOUGH = 0.99
"""Attributed share below which a note says so; ONNX Runtime's kernels of the zoo give 1."""

SHARE = (
    "share: of the time of all kernels, median over processes. Profiling makes an inference "
    "slower, so it is a process apart: latency_ms is measured without a profile, and about_ms is "
    "the share of it. Time between kernels is in latency_ms and in no share."
)
_INTERVAL = (
    "share_low to share_high: interval of the median over processes by order statistics, from 5 "
    "processes on."
)
_MACS = (
    "macs_share: of the multiply-accumulates of the whole model, counted on the network. A "
    "component with a larger share of time than of MACs is limited by something else, such as "
    "memory. Empty: split by operator, a user's file, a module whose parts have all its MACs or "
    "with another name in this runtime, or a model that an older version exported."
)
NAMES = (
    "component: the first parts of the module's path, `set depth=2` gives more; a number belongs "
    "to the part before it. (model) linear is an operation of the model itself, outside of every "
    "module. A fused kernel counts for the module of the node that does the work, such as the "
    "convolution and not its activation, and a kernel that the runtime inserted, such as a change "
    "of layout, for the module of the kernel beside it."
)
_BYTES = (
    "written_mib and weight_mib: outputs and parameters of the kernels, summed. Buffers are used "
    "again, so this is traffic and no peak of memory. Empty: the runtime does not state it."
)


def components_table(session: Session) -> Table:
    """One row for each model, platform and component, the largest share first.

    Raises:
        NoDataError: no selected model was profiled.
        AnalysisError: the depth is not a whole number from 1.
    """
    kernels, left_out = selected_kernels(session)
    shares = shares_of(session, kernels)
    latency = pl.col("latency_ns") / NS_PER_MS
    shown = shares.select(
        "model",
        "platform_key",
        "component",
        "share",
        "share_low",
        "share_high",
        "macs_share",
        (pl.col("share") * latency).alias("about_ms"),
        latency.alias("latency_ms"),
        pl.col("n_kernels").round().cast(pl.Int64),
        (pl.col("output_bytes") / BYTES_PER_MIB).alias("written_mib"),
        (pl.col("weight_bytes") / BYTES_PER_MIB).alias("weight_mib"),
        "n_processes",
    )
    return Table(
        title=f"Components by {SPLIT.chosen(session.selection)}, {session.workload}",
        frame=shown,
        notes=(
            *session.cells.notes,
            *left_out,
            *_delegate_note(kernels),
            *_attributed_note(kernels, session),
        ),
        explanation=(SHARE, _INTERVAL, _MACS, NAMES, _BYTES),
    )


def selected_kernels(session: Session) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The kernels of the newest profiles of the selected cells, with `latency_ns` of each cell.

    Also a note on models that have several cells on a platform, which are left out.

    Raises:
        NoDataError: no model was profiled.
    """
    rows = session.side(COMPONENT_TIMES)
    cells = session.cells.cells.select(*PLACE, "latency_ns", measured_cell="cell_key")
    kernels, left_out = with_one_cell(valid_profiles(rows).join(cells, on=PLACE, how="inner"))
    macs = session.side(MODULE_MACS).with_columns(known_workload())
    kernels = with_whole_names(kernels, macs)
    if kernels.is_empty():
        raise NoDataError(
            " ".join((f"no selected model has a profile{_failures(rows)}.", *left_out)).rstrip("."),
            "make one: `fleetrank profile MODEL`, or `profile: true` in a sweep",
        )
    return kernels, left_out


def _failures(rows: pl.DataFrame) -> str:
    failed = rows.filter(pl.col("status") != "ok").sort("started_utc")
    if failed.is_empty():
        return ""
    last = failed["error_message"][-1]
    return f"; {count_of(failed.height, 'profile')} failed, the last with: {last}"


def shares_of(session: Session, kernels: pl.DataFrame) -> pl.DataFrame:
    """`component_shares` as the settings ask for them, with `latency_ns` and `macs_share`."""
    split = SPLIT.chosen(session.selection)
    depth = setting(session.selection, DEPTH.name, 1.0)
    if depth != int(depth) or not 1 <= depth <= _MOST_DEPTH:
        raise AnalysisError(
            f"depth={depth:g} is out of range", f"use a whole number from 1 to {_MOST_DEPTH}"
        )
    component = component_of(split, int(depth))
    latencies = kernels.select(*PLACE, "sweep_id", "latency_ns").unique()
    shares = component_shares(kernels, component).join(
        latencies, on=PLACE, how="left", maintain_order="left"
    )
    if split != MODULE:
        return shares.with_columns(pl.lit(None, pl.Float64()).alias("macs_share"))
    macs = macs_shares(session.side(MODULE_MACS), component)
    keys = ["sweep_id", "model", "workload", "component"]
    return shares.join(macs, on=keys, how="left", maintain_order="left")


def _delegate_note(kernels: pl.DataFrame) -> tuple[str, ...]:
    """Which kernels are the whole part of a graph that a delegate took."""
    operators = kernels["operator"].unique().sort()
    whole = operators.filter(operators.str.to_lowercase().str.contains("delegate", literal=True))
    if whole.is_empty():
        return ()
    return (
        f"{', '.join(whole)}: one row for all nodes that the delegate took, because it does not "
        "report its own operators, or what these do not explain.",
    )


def _attributed_note(kernels: pl.DataFrame, session: Session) -> tuple[str, ...]:
    """What is not attributed to a module, if the table is about modules."""
    if SPLIT.chosen(session.selection) != MODULE:
        return ()
    found = attributed_share(kernels)
    unnamed = found.filter(pl.col("attributed") == 0)
    partly = found.filter((pl.col("attributed") > 0) & (pl.col("attributed") < _ENOUGH))
    notes = []
    if not unnamed.is_empty():
        names = ", ".join(
            unnamed.select(pl.format("{} on {}", "model", "platform_key")).to_series()
        )
        notes.append(f"No module is known of {names}: see these by operator, `set split=operator`.")
    notes += [
        f"Only {100 * row['attributed']:.1f} % of the kernel time of {row['model']} on "
        f"{row['platform_key']} belongs to a known module."
        for row in partly.to_dicts()
    ]
    return tuple(notes)
