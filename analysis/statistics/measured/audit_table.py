"""Checks of a data set, measured or imported, before its figures are used."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import MIN_MODELS_FOR_INTERVAL
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.audit import (
    OUTLIER_FACTOR,
    OUTLIER_SCALES,
    PROPORTIONAL_SHARE,
    duplicate_pairs,
    fit_residuals,
    median_platforms,
    outliers,
    sentinels,
    tied_share,
    unit_slips,
)
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.analysis.stored.scope import differences
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

MAX_TIED_SHARE = 0.05
"""More ties than this change a rank correlation by more than its rounding."""
_TIME_UNITS_NS = (1.0, 1e3, 1e6, 1e9)
_MEMORY_UNITS_BYTES = (1.0, 2.0**10, 1e6, 2.0**20)


class Problem(StrEnum):
    """What a finding is about."""

    DIFFERENT_FACTS = "different facts"
    """A platform mixes facts that must be equal inside it."""
    DIFFERENT_METRICS = "different memory metrics"
    SENTINEL = "sentinel"
    """A figure is a code for 'missing'."""
    AGAINST_ITSELF = "outlier against itself"
    """The newest sweep contradicts the older ones."""
    AGAINST_THE_FIT = "outlier against the fit"
    """A figure is far from what the platform's other models predict."""
    UNIT_SLIP = "unit slip"
    """Such an outlier near 10^3 or 10^6."""
    DUPLICATE = "duplicate platform"
    PROPORTIONAL = "proportional platform"
    """All ratios to another platform are equal, but not 1."""
    TIED_LATENCY = "tied latency"
    TIED_MEMORY = "tied memory"
    TOO_FEW_MODELS = "too few models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of the audit.

    Attributes:
        model: `None` if the finding is about the whole platform.
        figure: the observed value; `detail` explains it.
    """

    what: Problem
    platform_key: str
    model: str | None
    figure: float | None
    detail: str
    what_to_do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """All findings, by kind, platform, model and detail.

    Attributes:
        is_complete: false if no platform can be ranked, so that only single rows were checked.
        notes: facts about the selected rows.
    """

    findings: tuple[Finding, ...]
    is_complete: bool
    notes: tuple[str, ...]


def audit(session: Session) -> AuditResult:
    """Checks the selected rows.

    Raises:
        NoDataError: no row matches the selection.
    """
    scope = session.cells
    findings = [*_mixed(scope.cells), *_sentinels(scope.cells), *_against_itself(session)]
    is_complete, notes = True, scope.notes
    try:
        panel = session.panel
    except NotComparableError:
        is_complete = False
    else:
        findings += _of_panel(panel)
        notes = panel.notes
    findings.sort(key=lambda one: (one.what, one.platform_key, one.model or "", one.detail))
    return AuditResult(findings=tuple(findings), is_complete=is_complete, notes=notes)


def audit_table(session: Session) -> Table:
    """Every finding, by kind, platform and model."""
    found = audit(session)
    counts = sorted(Counter(finding.what for finding in found.findings).items())
    listed = ", ".join(f"{what} {count}" for what, count in counts)
    summary = f"{count_of(len(found.findings), 'finding')}: {listed or 'none'}."
    dropped = "Rows left out at import are in table `dropped`."
    method = _METHOD if found.is_complete else (_NO_METHOD,)
    return Table(
        title="Audit",
        frame=pl.DataFrame(
            [{**asdict(one), "what": one.what.value} for one in found.findings], schema=_SCHEMA
        ),
        notes=(summary, *found.notes),
        explanation=(dropped, *method),
    )


_SCHEMA = {
    "what": pl.String,
    "platform_key": pl.String,
    "model": pl.String,
    "figure": pl.Float64,
    "detail": pl.String,
    "what_to_do": pl.String,
}
_NO_METHOD = "Every platform mixes facts that must be equal: no other check was made."
_METHOD = (
    "duplicate: every ratio over the common models (5 or more) within "
    f"+-{100 * PROPORTIONAL_SHARE:g} % of their median.",
    "outlier: distance from the platform's line on the median platform, both logarithmic "
    f"(Siegel's repeated medians), over {OUTLIER_SCALES:g} x 1.4826 x the median absolute residual "
    f"and over a factor of {OUTLIER_FACTOR:g}; unit slip: the same near 10^3 or 10^6.",
    "Findings do not drop any rows.",
)


def _of_panel(panel: Panel) -> Iterator[Finding]:
    logs = np.log(np.where(panel.latency > 0, panel.latency, np.nan))
    yield from _duplicates(panel, logs)
    yield from _off_the_line(panel, logs)
    yield from _ties(panel)
    yield from _few(panel)


def _mixed(cells: pl.DataFrame) -> Iterator[Finding]:
    for platform, text in differences(cells).items():
        yield Finding(
            what=Problem.DIFFERENT_METRICS if "memory_metric:" in text else Problem.DIFFERENT_FACTS,
            platform_key=platform,
            model=None,
            figure=None,
            detail=text,
            what_to_do="it is left out of rankings; choose one sweep, or measure it again",
        )


def _sentinels(cells: pl.DataFrame) -> Iterator[Finding]:
    for column, units in (
        ("latency_ns", _TIME_UNITS_NS),
        ("peak_memory_bytes", _MEMORY_UNITS_BYTES),
    ):
        values = cells[column].cast(pl.Float64).to_numpy().astype(np.float64)
        for row in cells.filter(pl.Series(sentinels(values, units))).iter_rows(named=True):
            yield Finding(
                what=Problem.SENTINEL,
                platform_key=row["platform_key"],
                model=row["model"],
                figure=float(row[column]),
                detail=f"{column} is a code for 'missing' in some unit",
                what_to_do="import it as missing: list it under [missing] in the mapping",
            )


def _against_itself(session: Session) -> Iterator[Finding]:
    """The newest sweep of a model on a platform against the median of its older ones."""
    key = ("platform_key", "model", "input_size")
    sweeps = (
        session.attempts.filter((pl.col("status") == "ok") & (pl.col("latency_p50_ns") > 0))
        .group_by(*key, "sweep_id")
        .agg(pl.col("latency_p50_ns").median(), pl.col("started_utc").min())
        .sort("started_utc", "sweep_id")
        .group_by(key, maintain_order=True)
        .agg(
            pl.col("latency_p50_ns").last().alias("newest"),
            pl.col("latency_p50_ns").slice(0, pl.len() - 1).median().alias("older"),
            (pl.len() - 1).alias("n_older"),
        )
        .filter(pl.col("n_older") > 0)
        .collect()
    )
    for row in sweeps.iter_rows(named=True):
        ratio = row["newest"] / row["older"]
        if max(ratio, 1 / ratio) > OUTLIER_FACTOR:
            yield Finding(
                what=Problem.AGAINST_ITSELF,
                platform_key=row["platform_key"],
                model=row["model"],
                figure=ratio,
                detail=(
                    f"newest {row['newest'] / NS_PER_MS:.4g} ms, median of "
                    f"{count_of(row['n_older'], 'older sweep')} {row['older'] / NS_PER_MS:.4g} ms"
                ),
                what_to_do=(
                    "measure it again, or exclude the wrong one (`fleetrank results exclude`); "
                    "do not average the two"
                ),
            )


def _duplicates(panel: Panel, logs: Floats) -> Iterator[Finding]:
    devices = panel.platforms["device"].to_list()
    for first, second, n_models, ratio, deviation in duplicate_pairs(logs):
        same = "the same device, " if devices[first] == devices[second] else ""
        is_equal = max(ratio, 1 / ratio) - 1 + deviation <= PROPORTIONAL_SHARE
        form = "equal to" if is_equal else "proportional to"
        yield Finding(
            what=Problem.DUPLICATE if is_equal else Problem.PROPORTIONAL,
            platform_key=panel.keys[second],
            model=None,
            figure=ratio,
            detail=(
                f"{form} {panel.keys[first]}: {same}{n_models} models, every ratio within "
                f"{100 * deviation:.2g} % of {ratio:.4g}"
            ),
            what_to_do="possibly the same device registered twice: if so, count it once",
        )


def _off_the_line(panel: Panel, logs: Floats) -> Iterator[Finding]:
    references = median_platforms(logs, panel.platforms["tier"].fill_null("?").to_list())
    for column, key in enumerate(panel.keys):
        residuals, scale = fit_residuals(logs[:, column], references[column])
        if scale is None:
            continue
        powers = unit_slips(residuals)
        for row in np.flatnonzero(outliers(residuals, scale)):
            factor = float(np.exp(residuals[row]))
            slip = int(powers[row])
            yield Finding(
                what=Problem.UNIT_SLIP if slip else Problem.AGAINST_THE_FIT,
                platform_key=key,
                model=panel.models[row],
                figure=factor,
                detail=(
                    f"{panel.latency[row, column] / NS_PER_MS:.4g} ms is {factor:.3g} times the "
                    f"value predicted from the platform's other models; scale {np.exp(scale):.3g}"
                    + (f", near 10^{slip}" if slip else "")
                ),
                what_to_do=(
                    "check the unit of that row in the source"
                    if slip
                    else "measure it again; possible causes: a slow state, a fallback or another "
                    "network"
                ),
            )


def _ties(panel: Panel) -> Iterator[Finding]:
    for what, values in (
        (Problem.TIED_LATENCY, panel.latency),
        (Problem.TIED_MEMORY, panel.memory),
    ):
        for column, key in enumerate(panel.keys):
            share = tied_share(values[:, column])
            if share > MAX_TIED_SHARE:
                n = int(np.isfinite(values[:, column]).sum())
                yield Finding(
                    what=what,
                    platform_key=key,
                    model=None,
                    figure=share,
                    detail=f"share of {count_of(n, 'model')} that equals another's figure",
                    what_to_do="tied values (rounded at the source): their ranks are meaningless",
                )


def _few(panel: Panel) -> Iterable[Finding]:
    counts = np.isfinite(panel.latency).sum(axis=0)
    for key, n in zip(panel.keys, counts.tolist(), strict=True):
        if n < MIN_MODELS_FOR_INTERVAL:
            yield Finding(
                what=Problem.TOO_FEW_MODELS,
                platform_key=key,
                model=None,
                figure=float(n),
                detail=f"{count_of(n, 'model')}, {MIN_MODELS_FOR_INTERVAL} for an interval",
                what_to_do="measure more models; 100 are enough to decide a rho near 0.9",
            )
