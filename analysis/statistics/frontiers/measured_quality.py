"""The objective `quality`: what evaluations of the models found, in one metric on the same data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.evaluations import EVALUATIONS, LOWER_IS_BETTER
from fleetrank.analysis.stored.side_tables import of_most_models
from fleetrank.foundation.wording import count_of

_OF_TOKENIZER = ("perplexity", "token_top1", "token_top5")
"""Figures per token: another tokenizer makes other tokens of the same text."""
_SAME = ("task", "data_sha256", "strategy", "prompts", "item_limit", "tokens_of", "quality_metric")
_NOTHING = "No model has a measured quality: run `fleetrank eval` with trained weights."


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One figure for each model.

    Attributes:
        costs: (n_models,), smaller is better; NaN is not measured.
        note: which metric and data, or why a figure is missing.
    """

    costs: Floats
    note: str


def measured_quality(session: Session) -> Quality:
    """The quality of the panel's models in the metric and on the data that most of them share.

    Models are compared in one metric, task, text, strategy and set of prompts only; figures per
    token also with one tokenizer only. The newest evaluation of a model counts. Evaluations of
    seeded weights do not count: they show chance. Of two metrics with as many models, the one with
    the newest evaluation is used.
    """
    panel = session.panel
    # From the panel's name of a model to the name of its card.
    cells = session.comparable.cells.select("identity", "model").unique()
    names: dict[str, str] = dict(cells.iter_rows())
    known = _comparable(session.side(EVALUATIONS), list(names.values()))
    if known.is_empty():
        return Quality(costs=np.full(len(panel.models), np.nan), note=_NOTHING)
    used = of_most_models(known, _SAME)
    return Quality(costs=_costs(panel, names, used), note=_note(used))


def _comparable(rows: pl.DataFrame, models: Sequence[str]) -> pl.DataFrame:
    per_token = pl.col("quality_metric").is_in(_OF_TOKENIZER)
    is_seeded = pl.col("flags").list.contains("seeded").fill_null(value=False)
    return rows.filter(
        pl.col("model").is_in(models), pl.col("quality").is_not_null(), ~is_seeded
    ).with_columns(pl.when(per_token).then("tokenizer_sha256").alias("tokens_of"))


def _costs(panel: Panel, names: dict[str, str], used: pl.DataFrame) -> Floats:
    is_lower_better = used["quality_metric"][0] in LOWER_IS_BETTER
    found = dict(used.select("model", "quality").iter_rows())
    values = np.array([found.get(names[one], np.nan) for one in panel.models], dtype=np.float64)
    return values if is_lower_better else -values


def _note(used: pl.DataFrame) -> str:
    metric, task = used["quality_metric"][0], used["task"][0]
    best = "smallest" if metric in LOWER_IS_BETTER else "largest"
    data = used["data"].drop_nulls().unique().sort().to_list()
    of = f" on {', '.join(data)}" if data else ""
    return (
        f"Quality is {metric} of {task}{of}, the {best} is the best; "
        f"{count_of(used.height, 'model')} have it."
    )
