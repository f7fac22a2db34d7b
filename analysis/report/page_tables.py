"""Every table on the page, made once: headlines, charts and the study's tables share them."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

_OF_ALL = (
    "latency", "coldstart", "memory", "quality", "dropped", "frm", "disagreement", "shifts",
)  # fmt: skip
_OF_AVERAGED = ("transfer",)
_OF_COMPARED = ("frameworks", "predictability", "stability")
_OF_PAIRED = ("pareto", "regret")
_SLOW = ("stability",)
"""Its draws are many even for few platforms, and each costs as much as there are models."""
_MANY_MODELS = 200
_PAIR_SCHEMA = {
    "level": pl.String, "measure": pl.String, "form": pl.String, "source": pl.String,
    "target": pl.String, "n_models": pl.Int64, "rho": pl.Float64, "low": pl.Float64,
    "high": pl.Float64, "null_mean": pl.Float64, "null_p95": pl.Float64, "reason": pl.String,
    "median": pl.Float64, "worst": pl.Float64, "precision": pl.Float64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTables:
    """The tables by name.

    Attributes:
        made: where a table has no answer, it has no rows and its reason as note.
        reasons: why there is none, by name.
    """

    made: Mapping[str, Table]
    reasons: Mapping[str, str]

    def __getitem__(self, name: str) -> Table:
        """The table of that name."""
        return self.made[name]

    def known(self, *names: str) -> tuple[Table, ...]:
        """Those of these tables that could be made."""
        return tuple(self.made[name] for name in names if name not in self.reasons)

    def pair_rows(self, name: str) -> pl.DataFrame:
        """The rows of level `pair`; none where the table could not be made."""
        if name in self.reasons:
            return pl.DataFrame(schema=_PAIR_SCHEMA)
        return self.made[name].frame.filter(pl.col("level") == "pair")


def page_tables(evidence: Evidence) -> PageTables:
    """Makes them all; those of one frame one after the other, since they share what they read."""
    made: dict[str, Table] = {}
    reasons: dict[str, str] = {}
    for frame, names in (
        (evidence.attempts, _OF_ALL),
        (evidence.averaged, _OF_AVERAGED),
        (evidence.compared, _OF_COMPARED),
        (evidence.paired, _OF_PAIRED),
    ):
        for name in names:
            try:
                made[name] = _table(name, frame, evidence)
            except AnalysisError as error:
                reasons[name] = str(error)
                title = name.capitalize()
                made[name] = Table(title=title, frame=pl.DataFrame(), notes=(str(error),))
    return PageTables(made=made, reasons=reasons)


def _table(name: str, frame: pl.LazyFrame, evidence: Evidence) -> Table:
    n_models = evidence.cells["model"].n_unique()
    if name in _SLOW and n_models > _MANY_MODELS:
        raise AnalysisError(
            f"not made for the page: it takes long over {n_models:,} models",
            f"fleetrank report show {name}",
        )
    table = make_table(name, frame, evidence.selection)
    if name not in _OF_AVERAGED or evidence.compared is evidence.averaged:
        return table
    # Of many platforms it lists no pairs: those that are drawn are made of a few.
    few = make_table(name, evidence.compared, evidence.selection).frame
    parts = table.frame.filter(pl.col("level") != "pair"), few.filter(pl.col("level") == "pair")
    return Table(title=table.title, frame=pl.concat(parts), notes=table.notes)
