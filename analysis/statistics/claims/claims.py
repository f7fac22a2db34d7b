"""Table `claims`: each claim of a study beside the same figure of the selected rows.

A figure is a cell of another table, so it has the meaning, notes and tests that it has there.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.agreement import Agreement
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
from fleetrank.analysis.stored.cell_notes import is_banner
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained, frame_of
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
        here: the figure is its rho, whatever it is of; of several rows of a table it is their
            mean, and so are the ends of its interval, which is too wide rather than too narrow.
            `None` has its reason.
        verdict: what the interval says of the value.
        found: the table and row of the figure.
        reason: why the verdict is open, or what the table says of the row.
    """

    claim: str
    study: float | None
    here: Agreement | None = None
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
    rows = checked_claims(session, claims)
    number = Counter(row.verdict for row in rows)
    counts = (
        f"Of {count_of(len(rows) - number[None], 'claim')} {number[ClaimVerdict.HOLDS]} hold, "
        f"{number[ClaimVerdict.FAILS]} do not hold, and {number[ClaimVerdict.OPEN]} cannot be told "
        "from these rows."
    )
    notes = (counts, *session.panel.notes, *claims.notes)
    has_models = pl.col("n_models") > 0
    frame = frame_of(CheckedClaim, rows).with_columns(pl.when(has_models).then("n_models"))
    return Table(
        title=claims.title,
        frame=frame.rename(_SHOWN).select(_COLUMNS),
        notes=tuple(sorted(notes, key=lambda note: not is_banner(note))),
        explanation=explained(TABLE),
    )


_SHOWN = {"rho": "figure", "null_mean": "null", "residual_null_mean": "residual_null"}
_COLUMNS = (
    "claim", "study", "figure", "low", "high", "n_models", "n_pairs", "null", "residual_null",
    "ceiling", "verdict", "found", "reason",
)  # fmt: skip


def checked_claims(session: Session, claims: Claims) -> tuple[CheckedClaim, ...]:
    """Every claim; a table is made once for all claims of the same rows."""
    made = _Tables(session)
    return tuple(_checked(made, one, claims) for one in claims.claims)


class _Tables:
    """The tables that claims need; those of one selection and settings share a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sessions: dict[object, Session] = {}
        self._made: dict[object, pl.DataFrame | str] = {}

    def frame(self, claim: Claim, figure: ClaimFigure) -> pl.DataFrame | str:
        """The rows of the figure's table, or why there are none."""
        settings = tuple(figure.settings.items())
        own = replace(self._session.selection, settings=settings)
        selection = replace(own, **claim.selection)  # type: ignore[arg-type]
        if (figure.table, selection) not in self._made:
            session = self._sessions.setdefault(selection, self._session.asked(selection))
            try:
                found: pl.DataFrame | str = session_table(figure.table, session).frame
            except AnalysisError as error:
                found = error.message
            self._made[figure.table, selection] = found
        return self._made[figure.table, selection]


def _checked(made: _Tables, claim: Claim, claims: Claims) -> CheckedClaim:
    """The claim with the first of its figures that has a value, else with the first reason."""
    tried = list[CheckedClaim]()
    for name in claim.figure:
        tried.append(_looked_up(made, claim, name, claims.figures[name]))
        if tried[-1].here is not None:
            break
    row = tried[-1] if tried[-1].here is not None else tried[0]
    if claim.value is None:
        return row
    verdict, why = verdict_of(row.here, claim.value, claim.rule)
    reason = "; ".join(text for text in (why, row.reason) if text)
    return replace(row, verdict=verdict, reason=reason or None)


def _looked_up(made: _Tables, claim: Claim, name: str, figure: ClaimFigure) -> CheckedClaim:
    """The claim with one of its figures, or with the reason why it is missing."""
    wanted = {**figure.row, **claim.row}
    request = TableRequest(name=figure.table, settings=tuple(figure.settings.items()))
    found = f"{request.words}: {', '.join(wanted.values())}"
    blank = CheckedClaim(claim=claim.claim, study=claim.value, found=found)
    frame = made.frame(claim, figure)
    if isinstance(frame, str):
        return replace(blank, reason=frame)
    _refuse_wrong_columns(name, figure, wanted, frame)
    mine = frame.filter(pl.col(key).cast(pl.String) == word for key, word in wanted.items())
    rows = mine.filter(pl.col(figure.column).is_not_null())
    reasons = mine["reason"].drop_nulls().unique().sort().to_list() if "reason" in mine else []
    if rows.height < claim.least_rows:
        few = f"the table has {count_of(rows.height, 'such row')}, {claim.least_rows} needed"
        if rows.is_empty():
            few = "; ".join(reasons) or "the table has no such row"
        return replace(blank, reason=few)
    if rows.height > 1:
        reasons.insert(0, f"the mean of {rows.height} rows")
    beside = [_values_of(rows, figure.beside.get(one, one)) for one in BESIDE]
    n_models, n_pairs = (
        min((int(n) for n in some if n is not None), default=None) for some in beside[:2]
    )
    rho, low, high, null, residual_null, ceiling = (
        None if None in some else sum(some) / len(some)  # type: ignore[arg-type]
        for some in (_values_of(rows, figure.column), *beside[2:])
    )
    here = Agreement(
        measure=claim.claim,
        n_models=n_models or 0,
        n_pairs=n_pairs,
        rho=rho,
        low=low,
        high=high,
        null_mean=null,
        residual_null_mean=residual_null,
        ceiling=ceiling,
    )
    name = f"{claim.claim} ({figure.note})" if figure.note else claim.claim
    return replace(blank, claim=name, here=here, reason="; ".join(reasons) or None)


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


def _values_of(rows: pl.DataFrame, column: str | float) -> list[float | None]:
    """The values of a column, or the number itself; `None` without such a column of numbers."""
    if isinstance(column, float):
        return [column]
    is_known = column in rows.columns and rows[column].dtype.is_numeric()
    return rows[column].cast(pl.Float64).to_list() if is_known else [None]


def verdict_of(here: Agreement | None, value: float, rule: Rule) -> tuple[ClaimVerdict, str | None]:
    """What the interval says of the value, and why it cannot be told; `None` where it can."""
    if here is None:
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
    null = here.null_mean if here.residual_null_mean is None else here.residual_null_mean
    if null is not None and here.low <= null <= here.high:
        return ClaimVerdict.OPEN, "the interval holds the value and the null"
    return ClaimVerdict.HOLDS, None
