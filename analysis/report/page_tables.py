"""All tables of the page. Each is computed once; its charts and sections use them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import Json, table_request
from fleetrank.analysis.report.pair_view import fleet_data
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.statistics.frontiers.frontier_transfer import ParetoResult, pareto
from fleetrank.analysis.statistics.history.history_table import History, history
from fleetrank.analysis.statistics.language.language import PhasesResult, phases
from fleetrank.analysis.statistics.measured.devices_table import States, with_states
from fleetrank.analysis.statistics.measured.verdicts import with_verdicts
from fleetrank.analysis.statistics.prediction.predictions import (
    Prediction,
    PredictionsResult,
    predict,
)
from fleetrank.analysis.statistics.prediction.predictions_table import predictions_as_table
from fleetrank.analysis.statistics.scaling.scaling_points import scaling_points
from fleetrank.analysis.statistics.transfer.transfer import (
    TransferResult,
    transfer,
    transfer_as_table,
)
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, ORIGINS
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import session_table
from fleetrank.foundation.reading_beside import pause_between_steps
from fleetrank.foundation.vocabulary import Axis

UNREAL = tuple(origin for origin in ORIGINS if origin not in DEFAULT_ORIGINS)
"""Origins that are not real devices."""


def unreal_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of simulated or virtual devices; `origin` may list several origins."""
    return rows.filter(pl.col("origin").str.contains("|".join(UNREAL)))


def kinds_of(origins: Iterable[str | None]) -> str:
    """Which origins that are not real devices occur, as words; empty without any."""
    known = {part for one in origins if one for part in one.split(" | ")}
    return " and ".join(kind for kind in UNREAL if kind in known)


def titled(name: str, origins: Iterable[str | None]) -> str:
    """The name of a device or platform, and after it what it is if it is not a real device."""
    kinds = kinds_of(origins)
    return f"{name} ({kinds})" if kinds else name


_OF_ALL = (
    "latency", "latency/coldstart", "scaling/memory", "trust/dropped", "trust/host",
    "trust/waits", "trust/devices", "flops/frm", "flops", "flops/models", "scaling",
    "history/steps",
)  # fmt: skip
_OF_TOKENS = ("tokens",)
_OF_SEGMENTS = ("tokens/reading", "tokens/crossover", "tokens/contexts")
_OF_PROFILES = ("components", "components split=operator")
_OF_COMPARED_TOKENS = ("transfer/phases",)
"""Of a page about a workload with tokens."""
_OF_AVERAGED = ("transfer",)
_OF_COMPARED = (
    "transfer",
    "transfer along=runtime",
    "trust/stability",
    "trust/ranks",
    "claims",
)
"""With many platforms the means of `transfer` are those of `averaged`, and its pairs are these."""
_OF_PAIRED = ("frontier", "frontier/regret")
PREDICTED_LEAD = (
    "An open symbol with a thin line is a prediction and its 90 % interval, not a measurement."
)
_OF_EVERY_WORKLOAD = ("scaling", "transfer/phases")
"""The workload of the page chooses the other tables."""
_SLOW = ("trust/stability", "trust/ranks", "claims")
"""These tables make many draws even for few platforms; the cost of one grows with the models."""
_MANY_MODELS = 200


@dataclass(slots=True, kw_only=True)
class PageTables:
    """The tables by name and settings, as `table_request` takes them; filled table by table.

    Attributes:
        made: a table without an answer has no rows; its note is the reason.
        reasons: why a table has no answer, by name.
        transfer, frameworks, pareto: what these tables are made from;
            `None` without an answer.
        fleet: the latencies that answer about two models; `None` without any to rank.
        why_no_fleet: the reason.
        verdicts: every cell with its verdict.
        curves: the points of table `scaling`, of all workloads; `None` without two of an axis.
        history: of all platforms; `None` without two sweeps of any.
        phases: of `transfer/phases`; `None` without two workloads with tokens.
        predictions: of the page's platforms; `None` unless the page was asked to show them.
    """

    made: dict[str, Table] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    transfer: TransferResult | None = None
    frameworks: TransferResult | None = None
    pareto: ParetoResult | None = None
    predictions: PredictionsResult | None = None
    phases: PhasesResult | None = None
    curves: pl.DataFrame | None = None
    history: History | None = None
    fleet: Json | None = None
    why_no_fleet: str = ""
    verdicts: pl.DataFrame = field(default_factory=pl.DataFrame)

    def __getitem__(self, name: str) -> Table:
        """The table of that name."""
        return self.made[name]

    def answered(self, *names: str) -> tuple[str, ...]:
        """Those of the tables that the page has with an answer."""
        return tuple(name for name in names if name in self.made and name not in self.reasons)


def page_tables(
    evidence: Evidence, *, is_predicted: bool = False, states: States | None = None
) -> PageTables:
    """Computes all tables; those of one set of platforms share a session, one is kept at a time.

    Args:
        evidence: the rows and values of the page.
        is_predicted: also predict the latencies that platforms of the page lack.
        states: of the devices now, as of `with_states`; `None` if nothing is known.
    """
    found = PageTables()
    session, n = evidence.session(), len(evidence.shown.names)
    found.verdicts = with_verdicts(session)
    try:
        found.fleet = fleet_data(session)
    except AnalysisError as error:
        found.why_no_fleet = f"{error}."
    if is_predicted:
        found.predictions = _predictions(session, evidence.shown)
        found.made["predict"] = predictions_as_table(found.predictions, session)
    tokens = _OF_TOKENS if evidence.token_workloads else ()
    segments = _OF_SEGMENTS if evidence.has_segments else ()
    profiles = _OF_PROFILES if evidence.has_profiles else ()
    of_compared = _OF_COMPARED + (_OF_COMPARED_TOKENS if evidence.token_workloads else ())
    for keys, names in (
        (None, (*_OF_ALL, *tokens, *segments, *profiles)),
        (evidence.averaged_keys, _OF_AVERAGED),
        (evidence.compared_keys, of_compared),
        (evidence.paired_keys, _OF_PAIRED),
    ):
        if keys is not None and len(keys) < n:
            session, n = session.narrowed(pl.col("platform_key").is_in(list(keys))), len(keys)
        for name in names:
            pause_between_steps(f"makes the table {name}")
            try:
                found.made[name] = _table(name, session, evidence, found)
            except AnalysisError as error:
                found.reasons[name] = str(error)
                request = table_request(name)
                settings = (f"{setting} {word}" for setting, word in request.choices)
                title = ", ".join((request.table.capitalize(), *settings))
                found.made[name] = Table(title=title, frame=pl.DataFrame(), notes=(str(error),))
    found.made["trust/devices"] = with_states(found["trust/devices"], states or {})
    return found


def _table(name: str, session: Session, evidence: Evidence, found: PageTables) -> Table:
    request, n_models = table_request(name), evidence.cells["model"].n_unique()
    if name in _SLOW and n_models > _MANY_MODELS:
        raise AnalysisError(
            f"not computed for the page: it takes too long for {n_models:,} models",
            f"fleetrank report show {request.words}",
        )
    if name == "transfer":
        mine, means = transfer(session), found.transfer
        found.transfer = mine if means is None else replace(means, pairs=mine.pairs)
        return transfer_as_table(found.transfer)
    asked = session.asked(request.selection(session.selection))
    if name == "transfer along=runtime":
        found.frameworks = transfer(asked, Axis.RUNTIME)
        return transfer_as_table(found.frameworks)
    if name in _OF_EVERY_WORKLOAD:
        asked = session.asked(replace(session.selection, workload=None))
    table = session_table(request.name, asked)
    if name == "scaling":
        found.curves = scaling_points(asked)
    if name == "transfer/phases":
        found.phases = phases(asked)
    if name == "frontier":
        found.pareto = pareto(session)
    if name == "history/steps":
        found.history = history(session)
    return table


def _predictions(session: Session, shown: Shown) -> PredictionsResult:
    """Predicted latencies of the page's models on those of its platforms that lack them."""
    counts = dict(shown.cells.group_by("platform_key").len().iter_rows())
    rows: list[Prediction] = []
    unpredicted: list[str] = []
    for key in shown.platforms:
        if counts.get(key, 0) == len(shown.models):
            continue
        try:
            found = predict(session.asked(replace(session.selection, target=key))).rows
        except NoDataError:
            unpredicted.append(key)
            continue
        rows += [one for one in found if one.measured is None and one.model in shown.model_at]
    return PredictionsResult(rows=tuple(rows), unpredicted=tuple(unpredicted))
