"""All tables of the page. Each is computed once; headlines, charts and study tables use them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.statistics.frontiers.frontier_transfer import ParetoResult, pareto
from fleetrank.analysis.statistics.frontiers.regret import RegretResult
from fleetrank.analysis.statistics.frontiers.regret_table import regrets
from fleetrank.analysis.statistics.prediction.predictability import (
    PredictabilityResult,
    predictability,
)
from fleetrank.analysis.statistics.transfer.transfer import (
    TransferResult,
    frameworks,
    transfer,
    transfer_as_table,
)
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import session_table

_OF_ALL = (
    "latency", "coldstart", "memory", "quality", "dropped", "frm", "disagreement", "shifts",
)  # fmt: skip
_OF_AVERAGED = ("transfer",)
_OF_COMPARED = ("transfer", "frameworks", "predictability", "stability")
"""With many platforms the means of `transfer` are those of `averaged`, and its pairs are these."""
_OF_PAIRED = ("pareto", "regret")
_SLOW = ("stability",)
"""This table makes many draws even for few platforms; the cost of one grows with the models."""
_MANY_MODELS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTables:
    """The tables by name.

    Attributes:
        made: a table without an answer has no rows; its note is the reason.
        reasons: why a table has no answer, by name.
        transfer, frameworks, predictability, pareto, regret: what these tables are made from;
            `None` without an answer.
    """

    made: Mapping[str, Table]
    reasons: Mapping[str, str]
    transfer: TransferResult | None
    frameworks: TransferResult | None
    predictability: PredictabilityResult | None
    pareto: ParetoResult | None
    regret: RegretResult | None

    def __getitem__(self, name: str) -> Table:
        """The table of that name."""
        return self.made[name]

    @property
    def ranks(self) -> tuple[TransferResult, ...]:
        """The results about rank transfer that could be computed."""
        return tuple(one for one in (self.transfer, self.frameworks) if one is not None)

    def known(self, *names: str) -> tuple[Table, ...]:
        """The tables with these names that could be computed."""
        return tuple(self.made[name] for name in names if name not in self.reasons)


def page_tables(evidence: Evidence) -> PageTables:
    """Computes all tables; those of one set of platforms share a session, one is kept at a time."""
    made: dict[str, Table] = {}
    reasons: dict[str, str] = {}
    found = _Found()
    session, n = evidence.session(), len(evidence.shown.names)
    for keys, names in (
        (None, _OF_ALL),
        (evidence.averaged_keys, _OF_AVERAGED),
        (evidence.compared_keys, _OF_COMPARED),
        (evidence.paired_keys, _OF_PAIRED),
    ):
        if keys is not None and len(keys) < n:
            session, n = session.narrowed(pl.col("platform_key").is_in(list(keys))), len(keys)
        for name in names:
            try:
                made[name] = _table(name, session, evidence, found)
            except AnalysisError as error:
                reasons[name] = str(error)
                title = name.capitalize()
                made[name] = Table(title=title, frame=pl.DataFrame(), notes=(str(error),))
    return PageTables(
        made=made,
        reasons=reasons,
        transfer=found.transfer,
        frameworks=found.frameworks,
        predictability=found.predictability,
        pareto=found.pareto,
        regret=found.regret,
    )


@dataclass(slots=True)
class _Found:
    """The results that are kept beside their tables, filled in the order of the tables."""

    transfer: TransferResult | None = None
    frameworks: TransferResult | None = None
    predictability: PredictabilityResult | None = None
    pareto: ParetoResult | None = None
    regret: RegretResult | None = None


def _table(name: str, session: Session, evidence: Evidence, found: _Found) -> Table:
    n_models = evidence.cells["model"].n_unique()
    if name in _SLOW and n_models > _MANY_MODELS:
        raise AnalysisError(
            f"not computed for the page: it takes too long for {n_models:,} models",
            f"fleetrank report show {name}",
        )
    if name == "transfer":
        mine, means = transfer(session), found.transfer
        found.transfer = mine if means is None else replace(means, pairs=mine.pairs)
        return transfer_as_table(found.transfer)
    table = session_table(name, session)
    if name == "frameworks":
        found.frameworks = frameworks(session)
    elif name == "predictability":
        found.predictability = predictability(session)
    elif name == "pareto":
        found.pareto = pareto(session)
    elif name == "regret":
        found.regret = regrets(session)
    return table
