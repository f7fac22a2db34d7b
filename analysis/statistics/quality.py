"""What is doubtful: flagged cells, dropped attempts, findings of the audit, a disturbed host."""

from collections import Counter
from dataclasses import replace

import polars as pl

from fleetrank.analysis.errors import NoDataError, NotComparableError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.audit import (
    MIN_RHO,
    OUTLIER_FACTOR,
    OUTLIER_SCALES,
    PROPORTIONAL_SHARE,
    Finding,
    of_panel,
)
from fleetrank.analysis.statistics.verdicts import of_rows, sweep_sentences, with_verdicts
from fleetrank.analysis.stored.cell_values import DISAGREE_SHARE, dropped_attempts, origin_banners
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.scope import differences, select_stored
from fleetrank.analysis.tables.explanations import explained
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_specs import TABLES
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.vocabulary import Problem

# Checks of a data set, measured or imported, before its figures are used.

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
        Finding,
        (one.with_command(str(session.workload)) for one in shown),
        title="Audit",
        notes=(*notes, summary),
        explanation=explained(part, texts),
        without=("wrong_cell",),
    )


def flags_table(session: Session) -> Table:
    """Quality flags of each model on each platform, the worst first."""
    scope = session.cells
    differing = differences(scope.cells)
    mixed = pl.col("platform_key").replace_strict(differing, default=None, return_dtype=pl.String)
    shown = (
        with_verdicts(session).select(
            "model", "platform_key", "verdict", "why", "n_repeats", "sample_count",
            "repeats_spread", "flags",
            mixed.alias("mixes"), pl.col("interval_reason").alias("reason"),
        )
        .sort(
            pl.col("flags").list.len(), "repeats_spread", "model", "platform_key",
            descending=[True, True, False, False], nulls_last=True,
        )
    )  # fmt: skip
    counts = scope.cells["flags"].explode().drop_nulls().value_counts().sort("flags").iter_rows()
    listed = ", ".join(f"{flag} {count}" for flag, count in counts)
    explanation = explained("trust/flags", {"disagree_percent": 100 * DISAGREE_SHARE})
    said = sweep_sentences(with_verdicts(session))
    notes = (*scope.notes, *said, f"Rows under each flag: {listed or 'none'}.")
    return Table(title="Quality", frame=shown, notes=notes, explanation=explanation)


def dropped_table(session: Session) -> Table:
    """All attempts that no figure uses, with the reason.

    Raises:
        NoDataError: the selection has no attempts at all.
    """
    selection = replace(session.selection, workload=str(session.workload))
    attempts = select_stored(session.frame, selection)
    total = attempts.select(pl.len()).collect().item()
    if total == 0:
        raise NoDataError(
            "no measurement matches the selection",
            "widen the selection; `include_simulated=true` adds virtual and simulated devices",
        )
    dropped = dropped_attempts(attempts)
    # Without a usable attempt there are no cells, and no platform that could mix facts.
    unlike = differences(session.cells.cells) if dropped.height < total else {}
    of_any_origin = select_stored(session.frame, replace(selection, origins=ORIGINS))
    unselected = of_any_origin.filter(~pl.col("origin").is_in(list(selection.origins)))
    others = unselected.group_by("origin").len().sort("origin").collect()
    counts = dropped["reason"].value_counts().sort("reason").iter_rows()
    notes = [
        *origin_banners(attempts),
        f"{dropped.height} of {count_of(total, 'attempt')} are not used in any figure: "
        + (", ".join(f"{reason} {count}" for reason, count in counts) or "none")
        + ".",
    ]
    notes += [
        f"{count_of(count, 'attempt')} of origin {origin} not selected."
        for origin, count in others.iter_rows()
    ]
    notes += [
        f"{platform} is left out of rankings because it mixes {text}."
        for platform, text in unlike.items()
    ]
    return Table(title="Dropped", frame=dropped, notes=tuple(notes))
