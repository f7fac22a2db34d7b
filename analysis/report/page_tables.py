"""All tables of the page. Each is computed once; headlines, charts and study tables use them."""

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
"""This table makes many draws even for few platforms; the cost of one grows with the models."""
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
        made: a table without an answer has no rows; its note is the reason.
        reasons: why a table has no answer, by name.
    """

    made: Mapping[str, Table]
    reasons: Mapping[str, str]

    def __getitem__(self, name: str) -> Table:
        """The table of that name."""
        return self.made[name]

    def known(self, *names: str) -> tuple[Table, ...]:
        """The tables with these names that could be computed."""
        return tuple(self.made[name] for name in names if name not in self.reasons)

    def pair_rows(self, name: str) -> pl.DataFrame:
        """The rows of level `pair`; empty if the table could not be computed."""
        if name in self.reasons:
            return pl.DataFrame(schema=_PAIR_SCHEMA)
        return self.made[name].frame.filter(pl.col("level") == "pair")


def page_tables(evidence: Evidence) -> PageTables:
    """Computes all tables; tables of one frame follow each other because they share its reading."""
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
            f"not computed for the page: it takes too long for {n_models:,} models",
            f"fleetrank report show {name}",
        )
    table = make_table(name, frame, evidence.selection)
    if name not in _OF_AVERAGED or evidence.compared is evidence.averaged:
        return table
    # With many platforms this table lists no pairs, so the drawn pairs use few platforms.
    few = make_table(name, evidence.compared, evidence.selection).frame
    parts = table.frame.filter(pl.col("level") != "pair"), few.filter(pl.col("level") == "pair")
    return Table(title=table.title, frame=pl.concat(parts), notes=table.notes)
