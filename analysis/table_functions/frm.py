"""FRM of every model on every platform, with the ratios it is made of."""

import numpy as np
import polars as pl

from analysis.errors import NoDataError
from analysis.frm import frm, ratios
from analysis.panel import Panel, incomplete_notes, make_panel, measures
from analysis.pareto import Mask
from analysis.ranking import average_ranks
from analysis.tables import Selection, Table

_MEANING = (
    "FRM = (ratio_flops x ratio_latency x ratio_memory)^(1/3); a ratio is the value over the "
    "geometric mean over the models of the platform; smaller is better.",
    "FLOPs are the same on every platform: before concluding that FRM agrees across platforms, "
    "see its null in table `transfer`.",
)


def frm_table(frame: pl.LazyFrame, selection: Selection) -> Table:
    """One row per model and platform with all three components, ranked inside the platform."""
    panel = make_panel(frame, selection)
    present = np.isfinite(measures(panel)[1].values)
    columns = np.flatnonzero(present.any(axis=0)).tolist()
    parts = [_platform_rows(panel, present[:, column], column) for column in columns]
    if not parts:
        raise NoDataError(
            "no model has FLOPs, latency and peak memory above 0 on any platform: "
            + " ".join(incomplete_notes(panel)),
            "see `fleetrank report show memory` for what was measured",
        )
    shown = pl.concat(parts).sort("platform_key", "rank_frm", "model")
    notes = (*panel.notes, *incomplete_notes(panel), *_MEANING)
    return Table(title="FRM", frame=shown, notes=notes)


def _platform_rows(panel: Panel, present: Mask, column: int) -> pl.DataFrame:
    rows = np.flatnonzero(present)
    flops = panel.flops[rows]
    latency = panel.latency[rows, column][:, None]
    memory = panel.memory[rows, column][:, None]
    compound = frm(flops, latency, memory)
    return pl.DataFrame(
        {
            "model": [panel.models[row] for row in rows],
            "platform_key": [panel.keys[column]] * rows.size,
            "n_models": [rows.size] * rows.size,
            "ratio_flops": ratios(flops),
            "ratio_latency": ratios(latency)[:, 0],
            "ratio_memory": ratios(memory)[:, 0],
            "frm": compound[:, 0],
            "rank_frm": average_ranks(compound)[:, 0],
            "rank_flops": average_ranks(flops[:, None])[:, 0],
            "rank_latency": average_ranks(latency)[:, 0],
            "memory_metric": [panel.platforms["memory_metric"][column]] * rows.size,
        },
        schema_overrides={"memory_metric": pl.String, "n_models": pl.Int64},
    )
