"""The tables a user can ask for by name.

To add one: write a function `(session) -> Table` in `analysis/statistics/` and add its entry to
`TABLES`. Start from `session.cells` or `session.panel`: they hold the selected values, and the
notes that every table shows.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection, fits_platform
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import nearest

TableFunction = Callable[[Session], Table]

_STATISTICS = "fleetrank.analysis.statistics"
"""The package of the modules in `TABLES`."""

FRM_WEIGHTS = ("weight_flops", "weight_latency", "weight_memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One table: where its function is, and what a user can give it.

    Attributes:
        function: `module:function` below `analysis/statistics`; imported on first use.
        is_of_platforms: the table shows single platforms: `source` selects them, and a target is
            an error.
        settings: its own settings for `--set`; the function defines their defaults.
    """

    function: str
    is_of_platforms: bool = False
    settings: tuple[str, ...] = ()


def _of_platforms(function: str, *settings: str) -> TableSpec:
    return TableSpec(function=function, is_of_platforms=True, settings=settings)


def _of_pairs(function: str, *settings: str) -> TableSpec:
    return TableSpec(function=function, settings=settings)


TABLES: Mapping[str, TableSpec] = MappingProxyType(
    {
        "latency": _of_platforms("measured.cell_tables:latency_table"),
        "memory": _of_platforms("measured.cell_tables:memory_table"),
        "coldstart": _of_platforms("measured.cell_tables:coldstart_table"),
        "frm": _of_platforms("ranks.frm_scores:frm_table", *FRM_WEIGHTS),
        "transfer": _of_pairs("transfer.transfer:transfer_table"),
        "decomposition": _of_pairs("transfer.decomposition:decomposition_table", *FRM_WEIGHTS),
        "ceiling": _of_pairs("transfer.ceiling:ceiling_table"),
        "stability": _of_pairs("transfer.stability:stability_table"),
        "predictability": _of_pairs("prediction.predictability:predictability_table"),
        "ratio-transfer": _of_pairs("prediction.ratio_transfer:ratio_transfer_table"),
        "pareto": _of_pairs("frontiers.frontier_transfer:pareto_table", "objectives"),
        "regret": _of_pairs("frontiers.regret_table:regret_table", "budgets_ms", "floors_percent"),
        "disagreement": _of_platforms("ranks.disagreement:disagreement_table"),
        "shifts": _of_platforms("ranks.disagreement:shifts_table"),
        "frameworks": _of_pairs("transfer.transfer:frameworks_table"),
        "proxies": _of_pairs("choices.proxies:proxies_table"),
        "coverage": _of_pairs("choices.coverage:coverage_table", "threshold"),
        "next-models": _of_platforms("choices.next_models:next_models_table", "k"),
        "savings": _of_platforms("choices.savings:savings_table"),
        "composites": _of_platforms("ranks.composites:composites_table"),
        "recommend": _of_pairs("choices.recommend:recommend_table", "goal"),
        "significance": _of_platforms(
            "measured.model_differences:significance_table", "model_a", "model_b", "within"
        ),
        "quality": _of_platforms("measured.cell_tables:quality_table"),
        "dropped": _of_platforms("measured.cell_tables:dropped_table"),
        "audit": _of_platforms("measured.audit_table:audit_table", "what"),
    }
)


def make_table(name: str, frame: pl.LazyFrame, selection: Selection) -> Table:
    """Makes one table from every stored attempt, as `load.load_measurements` scans them.

    Raises the errors of `session_table`, which is for several tables of the same rows.
    """
    return session_table(name, Session(frame, selection))


def session_table(name: str, session: Session) -> Table:
    """Makes one table; tables of one session share its arrays.

    Raises:
        AnalysisError: no such table or setting exists; the remedy names the nearest. Or a setting
            is far out of range.
        NoDataError: no row remains.
        NotComparableError: rows differ in a fact that must be equal for the comparison.
    """
    function = table_function(name)
    _refuse_unknown_settings(name, session.selection)
    _refuse_unmatched(session)
    if TABLES[name].is_of_platforms:
        session = _only_source(name, session)
    try:
        return function(session)
    except (ValueError, OverflowError) as error:
        if not session.selection.settings:
            raise
        raise AnalysisError(
            f"table '{name}' has no finite figures with these settings: {error}",
            "use values nearer to the defaults",
        ) from error


def _refuse_unmatched(session: Session) -> None:
    """Raises an error for a selector that matches no stored row: it is probably misspelt."""
    frame, selection = session.frame, session.selection
    for word, pattern, tier in (
        ("source", selection.source, selection.source_tier),
        ("target", selection.target, selection.target_tier),
    ):
        if pattern is None and tier is None:
            continue
        if frame.filter(fits_platform(pattern, tier)).head(1).collect().is_empty():
            asked = " and ".join(text for text in (pattern and f"'{pattern}'", tier) if text)
            raise NoDataError(
                f"no platform fits the {word} {asked}",
                "give a device's name, or a platform with * in it; `fleetrank report show latency` "
                "lists them",
            )


def _only_source(table: str, session: Session) -> Session:
    selection = session.selection
    if selection.target is not None or selection.target_tier is not None:
        raise AnalysisError(
            f"table '{table}' shows single platforms and has no target",
            "choose platforms with source or source_tier",
        )
    if selection.source is None and selection.source_tier is None:
        return session
    return session.once(_of_source)


def _of_source(session: Session) -> Session:
    selection = session.selection
    return session.narrowed(fits_platform(selection.source, selection.source_tier))


def _refuse_unknown_settings(table: str, selection: Selection) -> None:
    known = TABLES[table].settings
    for name, _ in selection.settings:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean '{near}'? " if near else ""
            raise AnalysisError(
                f"table '{table}' has no setting '{name}'",
                hint + (f"it takes {', '.join(known)}" if known else "it takes none"),
            )


def table_function(name: str) -> TableFunction:
    """The function of a name in `TABLES`.

    Raises:
        AnalysisError: no such table exists; the remedy names the nearest.
    """
    if name not in TABLES:
        near = nearest(name, TABLES)
        hint = f"did you mean '{near}'? " if near else ""
        raise AnalysisError(f"no table '{name}'", f"{hint}there are {', '.join(TABLES)}")
    module, _, attribute = TABLES[name].function.partition(":")
    function: TableFunction = getattr(importlib.import_module(f"{_STATISTICS}.{module}"), attribute)
    return function
