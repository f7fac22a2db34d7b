"""The tables a user can ask for by name.

To add one: write a function `(frame, selection) -> Table` in `analysis/table_functions/` and add
its name to `TABLES`; what it alone can be told (`--set`) is named in `SETTINGS`. Start from
`scope.select_cells`, which applies the selection and brings the notes that every table owes its
reader.
"""

import difflib
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import overload

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.load import DEFAULT_ORIGINS
from fleetrank.analysis.patterns import fits_platform


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What to look at; `None` selects all.

    Attributes:
        sweep: id of one sweep; otherwise the newest of each model and platform.
        source, target: a device, or a platform key in which `*` stands for anything. A table of
            single platforms shows those that fit `source`, and refuses a target.
        model: its name, in which `*` stands for anything.
        seed: of every random step: bootstrap, permutation, null.
        settings: what a single table can be told beyond that, see `SETTINGS`; read by `setting`.
    """

    sweep: str | None = None
    source: str | None = None
    target: str | None = None
    source_tier: str | None = None
    target_tier: str | None = None
    runtime: str | None = None
    precision: str | None = None
    family: str | None = None
    model: str | None = None
    origins: tuple[str, ...] = DEFAULT_ORIGINS
    seed: int = 0
    settings: tuple[tuple[str, float | str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled frame with what a reader has to know; undefined is null, with its reason.

    Raises:
        ValueError: a figure is NaN or infinite; a table function forgot to say why.
    """

    title: str
    frame: pl.DataFrame
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for column in self.frame.iter_columns():
            if column.dtype.is_float() and not all(map(math.isfinite, column.drop_nulls())):
                raise ValueError(f"column {column.name} of '{self.title}' holds NaN or infinity")


TableFunction = Callable[[pl.LazyFrame, Selection], Table]

TABLES: Mapping[str, str] = MappingProxyType(
    {
        "latency": "fleetrank.analysis.table_functions.performance:latency_table",
        "memory": "fleetrank.analysis.table_functions.performance:memory_table",
        "coldstart": "fleetrank.analysis.table_functions.performance:coldstart_table",
        "frm": "fleetrank.analysis.table_functions.frm:frm_table",
        "transfer": "fleetrank.analysis.table_functions.transfer:transfer_table",
        "decomposition": "fleetrank.analysis.table_functions.decomposition:decomposition_table",
        "ceiling": "fleetrank.analysis.table_functions.ceiling:ceiling_table",
        "stability": "fleetrank.analysis.table_functions.stability:stability_table",
        "predictability": "fleetrank.analysis.table_functions.predictability:predictability_table",
        "ratio-transfer": "fleetrank.analysis.table_functions.ratio_transfer:ratio_transfer_table",
        "pareto": "fleetrank.analysis.table_functions.pareto:pareto_table",
        "regret": "fleetrank.analysis.table_functions.regret:regret_table",
        "disagreement": "fleetrank.analysis.table_functions.disagreement:disagreement_table",
        "shifts": "fleetrank.analysis.table_functions.disagreement:shifts_table",
        "frameworks": "fleetrank.analysis.table_functions.transfer:frameworks_table",
        "proxies": "fleetrank.analysis.table_functions.proxies:proxies_table",
        "coverage": "fleetrank.analysis.table_functions.proxies:coverage_table",
        "next-models": "fleetrank.analysis.table_functions.next_models:next_models_table",
        "savings": "fleetrank.analysis.table_functions.next_models:savings_table",
        "composites": "fleetrank.analysis.table_functions.composites:composites_table",
        "recommend": "fleetrank.analysis.table_functions.recommend:recommend_table",
        "significance": "fleetrank.analysis.table_functions.significance:significance_table",
        "quality": "fleetrank.analysis.table_functions.quality:quality_table",
        "dropped": "fleetrank.analysis.table_functions.quality:dropped_table",
        "audit": "fleetrank.analysis.table_functions.audit:audit_table",
    }
)

OF_PLATFORMS = frozenset({
    "latency", "memory", "coldstart", "frm", "disagreement", "shifts", "next-models", "savings",
    "composites", "significance", "quality", "dropped", "audit",
})  # fmt: skip
"""Tables of single platforms: `source` narrows them, and a target they have none."""

FRM_WEIGHTS = ("weight_flops", "weight_latency", "weight_memory")

SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
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
"""The names that `--set` takes for a table, which states its defaults where it reads them."""


def make_table(name: str, frame: pl.LazyFrame, selection: Selection) -> Table:
    """Makes one table from every stored attempt, as `load.load_measurements` scans them.

    Raises:
        AnalysisError: there is no such table or setting; the remedy names the nearest. Or a
            setting is out of all proportion.
        NoDataError: no row is left to answer with.
        NotComparableError: rows differ in what the comparison needs equal.
    """
    function = _resolve(name)
    _refuse_unknown_settings(name, selection)
    _refuse_unmatched(frame, selection)
    if name in OF_PLATFORMS:
        frame = _narrowed(name, frame, selection)
    try:
        return function(frame, selection)
    except (ValueError, OverflowError) as error:
        if not selection.settings:
            raise
        raise AnalysisError(
            f"table '{name}' has no finite figures with these settings: {error}",
            "use values nearer to the defaults",
        ) from error


@overload
def setting(selection: Selection, name: str, default: float) -> float: ...
@overload
def setting(selection: Selection, name: str, default: str) -> str: ...
def setting(selection: Selection, name: str, default: float | str) -> float | str:
    """What the user set, of the default's kind, or the default; the last one counts.

    Raises:
        AnalysisError: a number is expected and something else is given.
    """
    given = dict(selection.settings).get(name, default)
    if isinstance(default, str):
        return str(given)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AnalysisError(f"{name}={given} is no number", f"such as --set {name}={default:g}")
    return value


def _refuse_unmatched(frame: pl.LazyFrame, selection: Selection) -> None:
    """A selector that fits nothing stored is a slip, not a wish for everything."""
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


def _narrowed(table: str, frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    if selection.target is not None or selection.target_tier is not None:
        raise AnalysisError(
            f"table '{table}' looks at each platform by itself and has no target",
            "choose platforms with source or source_tier",
        )
    if selection.source is None and selection.source_tier is None:
        return frame
    return frame.filter(fits_platform(selection.source, selection.source_tier))


def _refuse_unknown_settings(table: str, selection: Selection) -> None:
    known = SETTINGS.get(table, ())
    for name, _ in selection.settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise AnalysisError(
                f"table '{table}' has no setting '{name}'",
                hint + (f"it takes {', '.join(known)}" if known else "it takes none"),
            )


def _resolve(name: str) -> TableFunction:
    if name not in TABLES:
        near = difflib.get_close_matches(name, TABLES, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise AnalysisError(f"no table '{name}'", f"{hint}there are {', '.join(TABLES)}")
    module, _, attribute = TABLES[name].partition(":")
    function: TableFunction = getattr(importlib.import_module(module), attribute)
    return function
