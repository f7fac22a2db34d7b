"""The tables a user can ask for by name.

To add one: write a function `(session) -> Table` in `analysis/statistics/` and add its entry to
`TABLES`. Start from `session.cells` or `session.panel`: they hold the selected values, and the
notes that every table shows. Settings are in `table_settings`, former names in `former_names`.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.selection import Selection, fits_platform
from fleetrank.analysis.stored.unmatched import refuse_unmatched
from fleetrank.analysis.tables.batch_columns import with_batches
from fleetrank.analysis.tables.former_names import FORMER, request_of
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import (
    AXIS,
    BUDGETS,
    BY_GROUP,
    BY_ROW,
    COVERAGE,
    CURVES,
    DEPTH,
    DETAIL,
    FIELDS_OF_RUN,
    FILES,
    FLOORS,
    GENERATED,
    GOAL,
    LIKE,
    LIST,
    MARGIN,
    MEMORY_BUDGETS,
    METHOD,
    MODEL_A,
    MODEL_B,
    MODELS,
    OBJECTIVES,
    OVER,
    OWN,
    PART,
    PREDICTED,
    PROMPT,
    QUANTITY,
    READING,
    REFERENCE,
    SCORE,
    SPLIT,
    STRIDE,
    THRESHOLD,
    TOKENS,
    TOP_K,
    WHAT,
    WITHIN,
    K,
    Setting,
    frm_weights,
    refuse_wrong_settings,
)
from fleetrank.foundation.reading import pause_between_steps
from fleetrank.foundation.wording import nearest

if TYPE_CHECKING:
    from fleetrank.analysis.panel.session import Session

TableFunction = Callable[["Session"], Table]

_STATISTICS = "fleetrank.analysis.statistics"
"""The package of the modules in `TABLES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One table: where its function is, and what a user can give it.

    Attributes:
        function: `module:function` below `analysis/statistics`; imported on first use.
        is_of_platforms: the table shows single platforms: `source` selects them, and a target is
            an error.
        is_apart: its rows are not measurements, so a name that no measurement has is allowed.
        settings: its own settings, with their words and defaults.
    """

    function: str
    is_of_platforms: bool = False
    is_apart: bool = False
    settings: tuple[Setting, ...] = ()


def _of_platforms(function: str, *settings: Setting) -> TableSpec:
    return TableSpec(function=function, is_of_platforms=True, settings=settings)


def _of_pairs(function: str, *settings: Setting) -> TableSpec:
    return TableSpec(function=function, settings=settings)


TABLES: Mapping[str, TableSpec] = MappingProxyType(
    {
        "cells": _of_platforms("measured.cell_tables:cells_table", QUANTITY),
        "tokens": _of_platforms("language.token_figures:tokens_table"),
        "end-to-end": _of_platforms("language.end_to_end:end_to_end_table", PROMPT, GENERATED),
        "phases": _of_platforms("language.phases_table:phases_table"),
        "scaling": _of_platforms("scaling.scaling:scaling_table", AXIS, CURVES),
        "memory": _of_platforms("scaling.memory_parts:memory_table", FILES),
        "sustained": _of_platforms("scaling.sustained:sustained_table"),
        "strategies": _of_platforms(
            "reading.strategies_table:strategies_table", READING, STRIDE, TOKENS, REFERENCE
        ),
        "summary": _of_platforms("summary.summary_table:summary_table", FIELDS_OF_RUN),
        "training": _of_platforms("measured.training_steps:training_table"),
        "frm": _of_platforms("ranks.frm_scores:frm_table", SCORE, *frm_weights(SCORE, "frm")),
        "transfer": _of_pairs(
            "transfer.transfer_table:transfer_table", BY_GROUP, DETAIL, *frm_weights(DETAIL, "full")
        ),
        "rank-sets": _of_platforms("ranks.model_ranks:rank_sets_table", TOP_K),
        "ceiling": _of_pairs("transfer.ceiling:ceiling_table"),
        "variance": _of_platforms("variance.variance_table:variance_table", PART),
        "stability": _of_pairs("transfer.stability:stability_table"),
        "predictability": _of_pairs("prediction.predictability:predictability_table", METHOD),
        "predictions": _of_pairs(
            "prediction.predictions_table:predictions_table", PREDICTED, COVERAGE, LIKE, MODELS
        ),
        "pareto": _of_pairs("frontiers.frontier_transfer:pareto_table", OBJECTIVES),
        "regret": _of_pairs("frontiers.regret_table:regret_table", BUDGETS, FLOORS, MEMORY_BUDGETS),
        "disagreement": _of_platforms("ranks.disagreement:disagreement_table", BY_ROW),
        "proxies": _of_pairs("choices.proxies:proxies_table", OWN, THRESHOLD),
        "effort": _of_platforms("choices.effort:effort_table", OVER, K),
        "recommend": _of_pairs("choices.recommend:recommend_table", GOAL),
        "significance": _of_platforms(
            "measured.model_differences:significance_table", MODEL_A, MODEL_B, WITHIN, MARGIN
        ),
        "components": _of_platforms("components.components_table:components_table", SPLIT, DEPTH),
        "component-ratios": _of_pairs(
            "components.component_ratios:component_ratios_table", SPLIT, DEPTH
        ),
        "replicas": _of_platforms("replicas.replicas_table:replicas_table"),
        "evaluations": TableSpec(
            function="evaluated.evaluations_table:evaluations_table",
            is_of_platforms=True,
            is_apart=True,
        ),
        "quality": _of_platforms("measured.quality:quality_table", LIST, WHAT),
    }
)


def make_table(
    name: str, frame: pl.LazyFrame, selection: Selection, *, results: Path | None = None
) -> Table:
    """Makes one table from every stored attempt, as `load.load_measurements` scans them.

    `results` is the folder that was scanned; tables of side tables are empty without it.
    Raises the errors of `session_table`, which is for several tables of the same rows.
    """
    from fleetrank.analysis.panel.session import Session

    return session_table(name, Session(frame, selection, results=results))


def session_table(name: str, session: "Session") -> Table:
    """Makes one table, also by a former name; tables of one session share its arrays.

    A table is a step: reading pauses before it while a measurement runs on this host.

    Raises:
        AnalysisError: no such table or setting exists; the remedy names the nearest. Or a setting
            is far out of range.
        NoDataError: no row remains.
        NotComparableError: rows differ in a fact that must be equal for the comparison.
    """
    pause_between_steps()
    spec = check_request(name, session.frame, session.selection)
    request = request_of(name)
    name, selection = request.table, request.selection(session.selection)
    function = table_function(name)
    session = session.asked(selection)
    if spec.is_of_platforms and (selection.source, selection.source_tier) != (None, None):
        session = session.once(_of_source)
    try:
        return with_batches(function(session), session)
    except (ValueError, OverflowError) as error:
        if not _has_free_settings(spec, selection):
            raise
        raise AnalysisError(
            f"table '{name}' has no finite figures with these settings: {error}",
            "use values nearer to the defaults",
        ) from error


def check_request(name: str, frame: pl.LazyFrame, selection: Selection) -> TableSpec:
    """Checks a table's name, settings and selection before any figure is computed.

    Raises:
        AnalysisError: no such table or setting exists, or the table has no target; the remedy
            names the nearest.
        NoDataError: no row has a platform or model of a name.
    """
    request = request_of(name)
    name, selection = request.table, request.selection(selection)
    table_function(name)
    spec = TABLES[name]
    refuse_wrong_settings(name, spec.settings, selection)
    if not spec.is_apart:
        refuse_unmatched(frame, selection)
    if spec.is_of_platforms and (selection.target, selection.target_tier) != (None, None):
        raise AnalysisError(
            f"table '{name}' shows single platforms and has no target",
            "choose platforms with source or source_tier",
        )
    return spec


def _has_free_settings(spec: TableSpec, selection: Selection) -> bool:
    """Whether the user gave a number or a text, which can be out of range."""
    free = {one.name for one in spec.settings if not one.words}
    return any(name in free for name, _ in selection.settings)


def _of_source(session: "Session") -> "Session":
    selection = session.selection
    return session.narrowed(fits_platform(selection.source, selection.source_tier))


def table_function(name: str) -> TableFunction:
    """The function of a name in `TABLES`.

    Raises:
        AnalysisError: no such table exists; the remedy names the nearest.
    """
    if name not in TABLES:
        near = nearest(name, (*TABLES, *FORMER))
        hint = f"did you mean '{near}'? " if near else ""
        raise AnalysisError(f"no table '{name}'", f"{hint}there are {', '.join(TABLES)}")
    module, _, attribute = TABLES[name].function.partition(":")
    function: TableFunction = getattr(importlib.import_module(f"{_STATISTICS}.{module}"), attribute)
    return function
