"""The tables a user can ask for by name.

To add one: write a function `(session) -> Table` in `analysis/statistics/` and add its name to
`TABLES`; its own settings (`--set`) are named in `SETTINGS`. Start from `session.cells` or
`session.panel`: they hold the selected values, and the notes that every table shows.
"""

import importlib
from collections.abc import Callable, Mapping
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

TABLES: Mapping[str, str] = MappingProxyType(
    {
        "latency": "measured.cell_tables:latency_table",
        "memory": "measured.cell_tables:memory_table",
        "coldstart": "measured.cell_tables:coldstart_table",
        "frm": "ranks.frm_scores:frm_table",
        "transfer": "transfer.transfer:transfer_table",
        "decomposition": "transfer.decomposition:decomposition_table",
        "ceiling": "transfer.ceiling:ceiling_table",
        "stability": "transfer.stability:stability_table",
        "predictability": "prediction.predictability:predictability_table",
        "ratio-transfer": "prediction.ratio_transfer:ratio_transfer_table",
        "pareto": "frontiers.frontier_transfer:pareto_table",
        "regret": "frontiers.regret_table:regret_table",
        "disagreement": "ranks.disagreement:disagreement_table",
        "shifts": "ranks.disagreement:shifts_table",
        "frameworks": "transfer.transfer:frameworks_table",
        "proxies": "choices.proxies:proxies_table",
        "coverage": "choices.coverage:coverage_table",
        "next-models": "choices.next_models:next_models_table",
        "savings": "choices.savings:savings_table",
        "composites": "ranks.composites:composites_table",
        "recommend": "choices.recommend:recommend_table",
        "significance": "measured.model_differences:significance_table",
        "quality": "measured.cell_tables:quality_table",
        "dropped": "measured.cell_tables:dropped_table",
        "audit": "measured.audit_table:audit_table",
    }
)

OF_PLATFORMS = frozenset({
    "latency", "memory", "coldstart", "frm", "disagreement", "shifts", "next-models", "savings",
    "composites", "significance", "quality", "dropped", "audit",
})  # fmt: skip
"""Tables of single platforms: `source` selects platforms; they have no target."""

FRM_WEIGHTS = ("weight_flops", "weight_latency", "weight_memory")

SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "audit": ("what",),
        "coverage": ("threshold",),
        "frm": FRM_WEIGHTS,
        "decomposition": FRM_WEIGHTS,
        "next-models": ("k",),
        "pareto": ("objectives",),
        "regret": ("budgets_ms", "floors_percent"),
        "recommend": ("goal",),
        "significance": ("model_a", "model_b", "within"),
    }
)
"""The settings of a table for `--set`; a table defines its defaults where it reads them."""


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
    if name in OF_PLATFORMS:
        session = _of_platforms(name, session)
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


def _of_platforms(table: str, session: Session) -> Session:
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
    known = SETTINGS.get(table, ())
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
    module, _, attribute = TABLES[name].partition(":")
    function: TableFunction = getattr(importlib.import_module(f"{_STATISTICS}.{module}"), attribute)
    return function
