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
from fleetrank.analysis.stored.component_times import COMPONENT_TIMES
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.stored.side_tables import MODULE_MACS
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.wording import count_of

_SPLIT = TABLES["components"].settings["split"]
_MOST_DEPTH = 20
_ENOUGH = 0.99
"""Attributed share below which a note says so; ONNX Runtime's kernels of the zoo give 1."""


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
        title=f"Components by {_SPLIT.chosen(session.selection)}, {session.workload}",
        frame=shown,
        notes=(
            *session.cells.notes,
            *left_out,
            *_delegate_note(kernels),
            *_attributed_note(kernels, session),
        ),
        explanation=explained("components/shares"),
    )


def selected_kernels(session: Session) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The kernels of the newest profiles of the selected cells, with `latency_ns` of each cell.

    Also a note on models that have several cells on a platform, which are left out.

    Raises:
        NoDataError: no model was profiled.
    """
    _component_choice(session.selection)  # a wrong depth is an error before any reading
    rows = session.side(COMPONENT_TIMES)
    cells = session.cells.cells.select(*PLACE, "latency_ns", measured_cell="cell_key")
    kernels, left_out = with_one_cell(valid_profiles(rows).join(cells, on=PLACE, how="inner"))
    macs = session.side(MODULE_MACS).with_columns(known_workload())
    kernels = with_whole_names(kernels, macs)
    if kernels.is_empty():
        raise NoDataError(
            " ".join((f"no selected model has a profile{_failures(rows)}.", *left_out)).rstrip("."),
            "make one: `fleetrank run MODEL` with `profile=true`, or `profile: true` in a sweep",
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
    split, depth = _component_choice(session.selection)
    component = component_of(split, depth)
    latencies = kernels.select(*PLACE, "sweep_id", "latency_ns").unique()
    shares = component_shares(kernels, component).join(
        latencies, on=PLACE, how="left", maintain_order="left"
    )
    if split != MODULE:
        return shares.with_columns(pl.lit(None, pl.Float64()).alias("macs_share"))
    macs = macs_shares(session.side(MODULE_MACS), component)
    keys = ["sweep_id", "model", "workload", "component"]
    return shares.join(macs, on=keys, how="left", maintain_order="left")


def _component_choice(selection: Selection) -> tuple[str, int]:
    """How components are named: by module, of so many parts of its path, or by operator."""
    split, depth = _SPLIT.chosen(selection), setting(selection, "depth", 1.0)
    if split != MODULE and "depth" in dict(selection.settings):
        raise AnalysisError(f"setting 'depth' has no effect with split={split}", "omit one of them")
    if depth != int(depth) or not 1 <= depth <= _MOST_DEPTH:
        raise AnalysisError(
            f"depth={depth:g} is out of range", f"use a whole number from 1 to {_MOST_DEPTH}"
        )
    return split, int(depth)


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
    if _SPLIT.chosen(session.selection) != MODULE:
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
