"""Checks of a data set, measured or imported, before its figures are used."""

from collections import Counter
from dataclasses import asdict, dataclass

import polars as pl

from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.audit import (
    MIN_RHO,
    OUTLIER_FACTOR,
    OUTLIER_SCALES,
    PROPORTIONAL_SHARE,
)
from fleetrank.analysis.statistics.measured.audit_panel import of_panel
from fleetrank.analysis.statistics.measured.audit_rows import of_rows
from fleetrank.analysis.statistics.measured.finding import Finding
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import WHAT
from fleetrank.foundation.vocabulary import Problem
from fleetrank.foundation.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """All findings, the most harmful kind first; in a kind by platform, model and detail.

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
    findings = list(of_rows(session))
    is_complete, notes = True, session.cells.notes
    try:
        notes = session.panel.notes
    except NotComparableError:
        is_complete = False
    else:
        findings += of_panel(session)
    findings.sort(key=_by_harm)
    return AuditResult(findings=tuple(findings), is_complete=is_complete, notes=notes)


def _by_harm(one: Finding) -> tuple[int, str, str, str]:
    return _RANKS[one.what], one.platform_key or "", one.model or "", one.detail


def findings_table(session: Session) -> Table:
    """Every finding, the most harmful kind first, and how many there are of each kind."""
    found = audit(session)
    shown = _chosen(found.findings, WHAT.chosen(session.selection))
    # The findings are sorted by kind, and a counter keeps the order of its first finds.
    counts = Counter(finding.what for finding in found.findings).items()
    listed = ", ".join(f"{what} {count}" for what, count in counts)
    summary = f"{count_of(len(found.findings), 'finding')}: {listed or 'none'}."
    if len(shown) < len(found.findings):
        summary += f" {len(shown)} of them are shown."
    dropped = "Rows left out at import are in the table `quality` with `list=dropped`."
    method = _METHOD if found.is_complete else (_NO_METHOD,)
    return Table(
        title="Audit",
        frame=pl.DataFrame([_row(one, str(session.workload)) for one in shown], schema=_SCHEMA),
        notes=(*found.notes, summary),
        explanation=(dropped, *method),
    )


def _row(one: Finding, workload: str) -> dict[str, object]:
    fields = asdict(one) | {"what": one.what.value, "command": one.command(workload)}
    return {name: fields[name] for name in _SCHEMA}


def _chosen(findings: tuple[Finding, ...], kinds: str) -> tuple[Finding, ...]:
    """Findings of some kinds, separated by commas, with a hyphen for a space. Empty: all."""
    wanted = {part.strip().replace("-", " ") for part in kinds.split(",") if part.strip()}
    return tuple(one for one in findings if not wanted or one.what in wanted)


_RANKS = {problem: rank for rank, problem in enumerate(Problem)}
_SCHEMA = {
    "what": pl.String,
    "platform_key": pl.String,
    "model": pl.String,
    "figure": pl.Float64,
    "detail": pl.String,
    "what_to_do": pl.String,
    "command": pl.String,
}
_NO_METHOD = "Every platform mixes facts that must be equal: no other check was made."
_METHOD = (
    "duplicate: 95 % of the ratios over the common models (5 or more) within "
    f"+-{100 * PROPORTIONAL_SHARE:g} % of their median, and rho at least {MIN_RHO:g}; for equal "
    "platforms a robust standard deviation of that share is enough.",
    "outlier: distance from the platform's line on the median platform of its tier, runtime and "
    "precision, both logarithmic (slope 1, or Siegel's repeated medians if their robust BIC is "
    f"better by more than 6), over {OUTLIER_SCALES:g} robust scales and over a factor of "
    f"{OUTLIER_FACTOR:g}; unit slip: the same near 10^3 or 10^6.",
    "platform or model in another unit: its median is near 10^3 or 10^6 times that of its tier, or "
    "what its FLOPs predict.",
    "Findings do not drop any rows.",
)
