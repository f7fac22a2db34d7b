"""Checks of a data set, measured or imported, before its figures are used."""

from collections import Counter

from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.audit.audit import (
    MIN_RHO,
    OUTLIER_FACTOR,
    OUTLIER_SCALES,
    PROPORTIONAL_SHARE,
)
from fleetrank.analysis.statistics.audit.audit_panel import of_panel
from fleetrank.analysis.statistics.audit.audit_rows import of_rows
from fleetrank.analysis.statistics.audit.finding import AuditFinding
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.vocabulary import Problem
from fleetrank.foundation.wording import count_of

_WHAT = TABLES["trust"].settings["what"]
_RANKS = {problem: rank for rank, problem in enumerate(Problem)}


def findings_table(session: Session) -> Table:
    """Every finding, the most harmful kind first, and how many there are of each kind.

    In a kind they are in the order of platform, model and detail. If no platform can be ranked,
    only single rows are checked.

    Raises:
        NoDataError: no row matches the selection.
    """
    findings = list(of_rows(session))
    part, notes = "trust/findings", session.cells.notes
    try:
        notes = session.panel.notes
    except NotComparableError:
        part = "trust/single-rows"
    else:
        findings += of_panel(session)
    findings.sort(
        key=lambda one: (_RANKS[one.what], one.platform_key or "", one.model or "", one.detail)
    )
    kinds = {word.strip().replace("-", " ") for word in _WHAT.chosen(session.selection).split(",")}
    wanted = kinds - {""}
    shown = [one for one in findings if not wanted or one.what in wanted]
    # The findings are sorted by kind, and a counter keeps the order of its first finds.
    counts = Counter(finding.what for finding in findings).items()
    listed = ", ".join(f"{what} {count}" for what, count in counts)
    summary = f"{count_of(len(findings), 'finding')}: {listed or 'none'}."
    if len(shown) < len(findings):
        summary += f" {len(shown)} of them are shown."
    texts = {
        "proportional_percent": 100 * PROPORTIONAL_SHARE,
        "min_rho": MIN_RHO,
        "outlier_scales": OUTLIER_SCALES,
        "outlier_factor": OUTLIER_FACTOR,
    }
    return Table.of(
        AuditFinding,
        (one.with_command(str(session.workload)) for one in shown),
        title="Audit",
        notes=(*notes, summary),
        explanation=explained(part, texts),
        without=("wrong_cell",),
    )
