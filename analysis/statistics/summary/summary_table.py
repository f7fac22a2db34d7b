"""Table `summary`: runs side by side, or every field of each run."""

from collections.abc import Sequence

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.summary.evaluated import SEEDED
from fleetrank.analysis.statistics.summary.run_summary import run_summaries, summary_cells
from fleetrank.analysis.statistics.summary.summary_fields import ARCHITECTURE, FIELDS, MEANINGS
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.schema.column import Column
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import FIELDS_OF_RUN
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
_RUN = "A run is a model with its weights on one platform; a figure that was not measured is empty."
_LEFT_OUT = "A figure that is empty in all runs has no column."
_MORE = (
    "`part=fields` lists every field; `fleetrank results export` with `standard_metrics=true` "
    "writes them as JSON or as pages, with the architecture from the card."
)


def summary_table(session: Session) -> Table:
    """One row for each run, or for each field of each run.

    Raises:
        NoDataError: no row matches the selection.
    """
    runs = run_summaries(session)
    is_long = FIELDS_OF_RUN.chosen(session.selection) == "fields"
    # Cards are not stored with results.
    fields = [one for one in FIELDS if one not in ARCHITECTURE]
    shown = field_rows(runs, fields).drop("meaning") if is_long else _compared(runs)
    named = [one.name for one in fields] if is_long else shown.columns
    dropped = session.dropped_notes(session.chosen_workloads)
    return Table(
        title="Summary of runs",
        frame=shown,
        notes=(*banners(session.once(summary_cells)), _RUN, *_random(runs), *dropped),
        explanation=(_MORE, *([] if is_long else [_LEFT_OUT]), *_meanings(named)),
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


def _meanings(names: Sequence[str]) -> list[str]:
    return [f"{name}: {MEANINGS[name]}." for name in names if name in MEANINGS]
