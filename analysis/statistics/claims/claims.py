"""Table `claims`: each claim of a study beside the same figure of the selected rows.

A figure is a cell of another table, so it has the meaning, notes and tests that it has there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.claims.claim_file import (
    BESIDE,
    TABLE,
    Claim,
    ClaimFigure,
    Claims,
    Rule,
    parse_claims,
    study_claims,
)
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.tables.tables import TableRequest, session_table
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.wording import count_of, did_you_mean

_FILE = "the file of claims"


class ClaimVerdict(StrEnum):
    """What the selected rows say of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot be told"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedClaim:
    """One claim, and its figure here.

    Attributes:
        study: the value that the study states; `None` stands beside others, without a verdict.
        figure: of several rows of a table their mean, whose interval is too wide rather than too
            narrow. `None` has its reason.
        n_models, n_pairs: the fewest of a row.
        verdict: what the interval says of the value.
        found: the table and row of the figure.
        reason: why the verdict is open, or what the table says of the row.
    """

    claim: str
    study: float | None
    figure: float | None = None
    low: float | None = None
    high: float | None = None
    n_models: int | None = None
    n_pairs: int | None = None
    null: float | None = None
    residual_null: float | None = None
    ceiling: float | None = None
    verdict: ClaimVerdict | None = None
    found: str | None = None
    reason: str | None = None


def claims_table(session: Session) -> Table:
    """Each claim of the study, or of the file in setting `claims`, beside its figure here.

    Raises:
        BadFileError: the file is not one of claims, or names a column that its table lacks.
    """
    text = setting(session.selection, TABLE, "")
    claims = parse_claims(text, _FILE) if text else study_claims()
    rows = [_checked(session, one, claims) for one in claims.claims]
    number = Counter(row.verdict for row in rows)
    counts = (
        f"Of {count_of(len(rows) - number[None], 'claim')} {number[ClaimVerdict.HOLDS]} hold, "
        f"{number[ClaimVerdict.FAILS]} do not hold, and {number[ClaimVerdict.OPEN]} cannot be told "
        "from these rows."
    )
    first = banners(session.cells.cells)
    return Table.of(
        CheckedClaim,
        rows,
        title=claims.title,
        notes=tuple(dict.fromkeys((*first, counts, *session.panel.notes, *claims.notes))),
        explanation=explained(TABLE),
    )


def _checked(session: Session, claim: Claim, claims: Claims) -> CheckedClaim:
    """The claim with the first of its figures that has a value, else with the first reason."""
    tried = list[CheckedClaim]()
    for name in claim.figure:
        found, is_last = _looked_up(session, claim, name, claims.figures[name])
        tried.append(found)
        if is_last:
            break
    row = tried[-1] if tried[-1].figure is not None else tried[0]
    if claim.value is None:
        return row
    verdict, why = verdict_of(row, claim.value, claim.rule)
    reason = "; ".join(text for text in (why, row.reason) if text)
    return replace(row, verdict=verdict, reason=reason or None)


def _looked_up(
    session: Session, claim: Claim, name: str, figure: ClaimFigure
) -> tuple[CheckedClaim, bool]:
    """The claim with one of its figures, or with the reason why it is missing.

    Also whether no other figure need be tried: this one has a value, or its table compares too few
    sources and targets by any measure.
    """
    wanted = {**figure.row, **claim.row}
    request = TableRequest(name=figure.table, settings=tuple(figure.settings.items()))
    found = f"{request.words}: {', '.join(wanted.values())}"
    blank = CheckedClaim(claim=claim.claim, study=claim.value, found=found)
    own = replace(session.selection, settings=request.settings)
    selection = replace(own, **claim.selection)  # type: ignore[arg-type]
    try:
        frame = session_table(figure.table, session.asked(selection)).frame
    except AnalysisError as error:
        return replace(blank, reason=error.message), False
    _refuse_wrong_columns(name, figure, wanted, frame)
    mine = _chosen(frame, wanted)
    rows = mine.filter(pl.col(figure.column).is_not_null())
    reasons = mine["reason"].drop_nulls().unique().sort().to_list() if "reason" in mine else []
    if rows.height < claim.least_rows:
        few = f"the table has {count_of(rows.height, 'such row')}, {claim.least_rows} needed"
        if rows.is_empty():
            few = "; ".join(reasons) or "the table has no such row"
        ends = [one for one in ("source", "target") if one in frame.columns]
        alike = _chosen(frame, {key: word for key, word in wanted.items() if key != "measure"})
        return replace(blank, reason=few), bool(ends) and alike.n_unique(ends) < claim.least_rows
    if rows.height > 1:
        reasons.insert(0, f"the mean of {rows.height} rows")
    columns = {"figure": figure.column} | {one: figure.beside.get(one, one) for one in BESIDE}
    figures = {one.removesuffix("_mean"): _value_of(rows, one, at) for one, at in columns.items()}
    words = f"{claim.claim} ({figure.note})" if figure.note else claim.claim
    reason = "; ".join(reasons) or None
    return replace(blank, claim=words, **figures, reason=reason), True  # type: ignore[arg-type]


def _chosen(frame: pl.DataFrame, wanted: Mapping[str, str]) -> pl.DataFrame:
    for key, word in wanted.items():
        frame = frame.filter(pl.col(key).cast(pl.String) == word)
    return frame


def _value_of(rows: pl.DataFrame, name: str, column: str | float) -> float | None:
    """The mean of a column, of counts the fewest; `None` without such a column of numbers.

    A number stands for itself.
    """
    if isinstance(column, float):
        return column
    if column not in rows.columns or not rows[column].dtype.is_numeric():
        return None
    values = rows[column]
    if name.startswith("n_"):
        return values.min()  # type: ignore[return-value]
    return None if values.null_count() else sum(values) / len(values)


def _refuse_wrong_columns(
    name: str, figure: ClaimFigure, wanted: Iterable[str], frame: pl.DataFrame
) -> None:
    """Accepts columns that the table has, and columns of numbers for figures.

    Raises:
        BadFileError: names the figure, and the nearest column of its table.
    """
    numbers = {figure.column, *(one for one in figure.beside.values() if isinstance(one, str))}
    for column in (*numbers, *wanted):
        if column not in frame.columns:
            raise BadFileError(
                f"{_FILE}: 'figures.{name}' names the column '{column}', and table "
                f"'{figure.table}' has none",
                f"{did_you_mean(column, frame.columns)}it has {', '.join(frame.columns)}",
            )
        kind = frame[column].dtype
        if not kind.is_numeric() if column in numbers else kind.is_nested():
            raise BadFileError(
                f"{_FILE}: 'figures.{name}' cannot use the column '{column}': it has lists, or a "
                "figure needs numbers",
                f"name a column of {'numbers' if column in numbers else 'words'}",
            )


def verdict_of(here: CheckedClaim, value: float, rule: Rule) -> tuple[ClaimVerdict, str | None]:
    """What the interval says of the value, and why it cannot be told; `None` where it can."""
    if here.figure is None:
        return ClaimVerdict.OPEN, None
    if here.low is None or here.high is None:
        return ClaimVerdict.OPEN, "the figure has no interval"
    is_above, is_below = here.low > value, here.high < value
    holds, fails = {
        Rule.EQUAL: (not (is_above or is_below), is_above or is_below),
        Rule.BELOW: (is_below, is_above),
        Rule.ABOVE: (is_above, is_below),
    }[rule]
    if fails:
        return ClaimVerdict.FAILS, None
    if not holds:
        return ClaimVerdict.OPEN, "the interval holds the value"
    # What only FLOPs explain is the stronger null.
    null = here.null if here.residual_null is None else here.residual_null
    if null is not None and here.low <= null <= here.high:
        return ClaimVerdict.OPEN, "the interval holds the value and the null"
    return ClaimVerdict.HOLDS, None
