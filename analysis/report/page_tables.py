"""All tables of the page. Each is computed once; headlines, charts and study tables use them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.page_predictions import PREDICTED_LEAD, page_predictions
from fleetrank.analysis.report.page_requests import REQUESTS
from fleetrank.analysis.statistics.frontiers.frontier_transfer import ParetoResult, pareto
from fleetrank.analysis.statistics.frontiers.regret import RegretResult
from fleetrank.analysis.statistics.frontiers.regret_table import regrets
from fleetrank.analysis.statistics.language.phases import PhasesResult, phases
from fleetrank.analysis.statistics.language.phases_table import phases_table
from fleetrank.analysis.statistics.prediction.predictability import (
    PredictabilityResult,
    predictability,
)
from fleetrank.analysis.statistics.prediction.predictions import PredictionsResult
from fleetrank.analysis.statistics.prediction.predictions_table import predictions_as_table
from fleetrank.analysis.statistics.scaling.scaling_points import scaling_points
from fleetrank.analysis.statistics.transfer.transfer import (
    TransferResult,
    frameworks,
    transfer,
)
from fleetrank.analysis.statistics.transfer.transfer_table import (
    frameworks_as_table,
    transfer_as_table,
)
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import session_table
from fleetrank.foundation.reading import pause_between_steps

_OF_ALL = (
    "latency", "coldstart", "memory", "quality", "dropped", "host", "waits", "frm",
    "disagreement", "shifts", "scaling",
)  # fmt: skip
_OF_TOKENS = ("tokens",)
OF_SEGMENTS = ("strategies", "crossover", "crossover-transfer", "segment-sizes")
_OF_PROFILES = ("components", "operators")
_OF_COMPARED_TOKENS = ("phases",)
"""Of a page about a workload with tokens."""
_OF_AVERAGED = ("transfer",)
_OF_COMPARED = (
    "transfer", "frameworks", "predictability", "stability", "rank-sets", "variance", "plans",
)  # fmt: skip
"""With many platforms the means of `transfer` are those of `averaged`, and its pairs are these."""
_OF_PAIRED = ("pareto", "regret")
_SLOW = ("stability", "rank-sets")
"""These tables make many draws even for few platforms; the cost of one grows with the models."""
_MANY_MODELS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTables:
    """The tables by their names on the page.

    Attributes:
        made: a table without an answer has no rows; its note is the reason.
        reasons: why a table has no answer, by name.
        transfer, frameworks, predictability, pareto, regret: what these tables are made from;
            `None` without an answer.
        curves: the points of table `scaling`, of all workloads; `None` without two of an axis.
        phases: what table `phases` is made from; `None` without two workloads with tokens.
        predictions: of the page's platforms; `None` unless the page was asked to show them.
    """

    made: Mapping[str, Table]
    reasons: Mapping[str, str]
    transfer: TransferResult | None
    frameworks: TransferResult | None
    predictability: PredictabilityResult | None
    pareto: ParetoResult | None
    regret: RegretResult | None
    predictions: PredictionsResult | None = None
    phases: PhasesResult | None = None
    curves: pl.DataFrame | None = None

    def __getitem__(self, name: str) -> Table:
        """The table of that name."""
        return self.made[name]

    @property
    def ranks(self) -> tuple[TransferResult, ...]:
        """The results about rank transfer that could be computed."""
        return tuple(one for one in (self.transfer, self.frameworks) if one is not None)

    @property
    def predicted_names(self) -> tuple[str, ...]:
        """The table of predictions, if the page has it."""
        return () if self.predictions is None else ("predictions",)

    @property
    def predicted_lead(self) -> tuple[str, ...]:
        """What the reader must know of predictions, if the page has them."""
        return () if self.predictions is None else (PREDICTED_LEAD,)

    def known(self, *names: str) -> tuple[Table, ...]:
        """The tables with these names that could be computed."""
        return tuple(self.made[name] for name in names if name not in self.reasons)


def page_tables(evidence: Evidence, *, is_predicted: bool = False) -> PageTables:
    """Computes all tables; those of one set of platforms share a session, one is kept at a time.

    Args:
        evidence: the rows and values of the page.
        is_predicted: also predict the latencies that platforms of the page lack.
    """
    made: dict[str, Table] = {}
    reasons: dict[str, str] = {}
    found = _Found()
    session, n = evidence.session(), len(evidence.shown.names)
    predictions = page_predictions(session, evidence.shown) if is_predicted else None
    if predictions is not None:
        made["predictions"] = predictions_as_table(predictions, session)
    for keys, names in (
        (None, (*_OF_ALL, *_of_some(evidence))),
        (evidence.averaged_keys, _OF_AVERAGED),
        (
            evidence.compared_keys,
            _OF_COMPARED + (_OF_COMPARED_TOKENS if evidence.token_workloads else ()),
        ),
        (evidence.paired_keys, _OF_PAIRED),
    ):
        if keys is not None and len(keys) < n:
            session, n = session.narrowed(pl.col("platform_key").is_in(list(keys))), len(keys)
        for name in names:
            pause_between_steps()
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
        predictions=predictions,
        phases=found.phases,
        curves=found.curves,
    )


def _of_some(evidence: Evidence) -> tuple[str, ...]:
    """The tables of all platforms that only some pages have."""
    tokens = _OF_TOKENS if evidence.token_workloads else ()
    segments = OF_SEGMENTS if evidence.has_segments else ()
    return (*tokens, *segments, *(_OF_PROFILES if evidence.has_profiles else ()))


@dataclass(slots=True)
class _Found:
    """The results that are kept beside their tables, filled in the order of the tables."""

    transfer: TransferResult | None = None
    frameworks: TransferResult | None = None
    predictability: PredictabilityResult | None = None
    pareto: ParetoResult | None = None
    regret: RegretResult | None = None
    phases: PhasesResult | None = None
    curves: pl.DataFrame | None = None


def _every_workload(session: Session) -> Session:
    """All workloads: the page's own one chooses the other tables."""
    return session.asked(replace(session.selection, workload=None))


def _table(name: str, session: Session, evidence: Evidence, found: _Found) -> Table:
    n_models = evidence.cells["model"].n_unique()
    if name in _SLOW and n_models > _MANY_MODELS:
        raise AnalysisError(
            f"not computed for the page: it takes too long for {n_models:,} models",
            f"fleetrank report show {REQUESTS[name].words}",
        )
    if name == "transfer":
        mine, means = transfer(session), found.transfer
        found.transfer = mine if means is None else replace(means, pairs=mine.pairs)
        return transfer_as_table(found.transfer)
    if name == "frameworks":
        found.frameworks = frameworks(session)
        return frameworks_as_table(found.frameworks)
    if name == "scaling":
        found.curves = _every_workload(session).once(scaling_points)
        return session_table(name, _every_workload(session))
    if name == "phases":
        every = _every_workload(session)
        found.phases = phases(every)
        return phases_table(every)
    request = REQUESTS[name]
    table = session_table(request.table, session.asked(request.selection(session.selection)))
    if name == "predictability":
        found.predictability = predictability(session)
    elif name == "pareto":
        found.pareto = pareto(session)
    elif name == "regret":
        found.regret = regrets(session)
    return table
