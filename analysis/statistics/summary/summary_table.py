"""Table `summary`: runs side by side, or every field of each run."""

from collections.abc import Sequence

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.summary.summary import (
    FIELDS,
    MEANINGS,
    run_summaries,
    summary_cells,
)
from fleetrank.analysis.statistics.summary.summary_quality import SEEDED
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.column import Column
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.units import BYTES_PER_MIB
from fleetrank.foundation.wording import count_of, few_of

_COMPARED = (
    "smallbench_acc", "perplexity", "bits_per_byte", "top1", "accuracy_top1", "image_latency_ms",
    "seq128_latency_ms", "seq512_latency_ms", "step_latency_ms", "images_per_s", "tokens_per_s",
    "train_step_ms",
)  # fmt: skip
_HOW_READ = ("quality_strategy", "quality_window_tokens")
_NAMED = 6
"""A note names at most this many models."""
_RUN_COLUMNS = (
    "A run is a model with its weights on one platform; a figure that was not measured is empty."
)


def summary_table(session: Session) -> Table:
    """One row for each run.

    Raises:
        NoDataError: no row matches the selection.
    """
    runs = run_summaries(session)
    shown = _compared(runs)
    dropped = session.dropped_notes(session.chosen_workloads)
    return Table(
        title="Summary of runs",
        frame=shown,
        notes=(*banners(summary_cells(session)), _RUN_COLUMNS, *_random(runs), *dropped),
        explanation=(
            *explained("summary"),
            *(f"{name}: {MEANINGS[name]}." for name in shown.columns if name in MEANINGS),
        ),
    )


def _random(runs: pl.DataFrame) -> tuple[str, ...]:
    """A note if the quality of a run is that of random weights."""
    found = runs.filter(pl.col("flags").list.contains(SEEDED))
    if found.is_empty():
        return ()
    names = found["model"].unique().sort().to_list()
    have = count_of(found.height, "run has", "runs have")
    return (
        f"{have} the flag {SEEDED}: random weights were evaluated, so perplexities and "
        f"accuracies show no quality ({few_of(names, _NAMED)}).",
    )


def field_rows(runs: pl.DataFrame, fields: Sequence[Column] = FIELDS) -> pl.DataFrame:
    """Model, platform, field, value as text and meaning; an empty value was not measured."""
    named = ("model", "platform")
    rows = [
        {**{name: run[name] for name in named}, "field": one.name,
         "value": None if run[one.name] is None else value_text(run[one.name]), "meaning": one.doc}
        for run in runs.to_dicts()
        for one in fields
        if one.name not in named
    ]  # fmt: skip
    names = (*named, "field", "value", "meaning")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()))


def _compared(runs: pl.DataFrame) -> pl.DataFrame:
    known, how = (
        [name for name in names if runs[name].null_count() < runs.height]
        for names in (_COMPARED, _HOW_READ)
    )
    memory = (pl.col("peak_memory_bytes") / BYTES_PER_MIB).alias("peak_memory_mib")
    millions = (pl.col("parameters") / 1e6).alias("million_parameters")
    return runs.select("model", "platform", millions, *known, memory, "n_repeats", *how, "flags")
