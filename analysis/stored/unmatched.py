"""Names in a selection that no stored row has: they are probably misspelt."""

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.chosen_workload import refuse_absent_workload
from fleetrank.analysis.stored.selection import Selection, fits_platform, matches
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import count_of, did_you_mean

_LISTED = "`fleetrank report show cells` lists them"


def refuse_unmatched(frame: pl.LazyFrame, selection: Selection) -> None:
    """Compares names of platforms, models and a workload with all rows, also failed ones.

    Raises:
        NoDataError: no row has a platform, model or workload of this name; the remedy names the
            nearest.
    """
    _refuse_platform(frame, "source", selection.source, selection.source_tier)
    _refuse_platform(frame, "target", selection.target, selection.target_tier)
    if selection.models:
        _refuse_models(frame, selection.models)
    refuse_absent_workload(frame, selection.workload)


def _refuse_platform(frame: pl.LazyFrame, word: str, pattern: str | None, tier: str | None) -> None:
    if pattern is None and tier is None:
        return
    if not frame.filter(fits_platform(pattern, tier)).head(1).collect().is_empty():
        return
    asked = " and ".join(text for text in (pattern and f"'{pattern}'", tier) if text)
    raise NoDataError(
        f"no platform fits the {word} {asked}",
        f"{_hint(pattern or '', _values(frame, 'device'))}give a device's name, or a platform with "
        f"* in it; {_LISTED}",
    )


def _refuse_models(frame: pl.LazyFrame, patterns: tuple[str, ...]) -> None:
    known = _values(frame, "model")
    lacking = [pattern for pattern in patterns if not _is_in(known, pattern)]
    if not lacking:
        return
    first, more = lacking[0], len(lacking) - 1
    others = f", nor {count_of(more, 'other name')} of the selection" if more else ""
    raise NoDataError(
        f"no model fits '{shortened(first)}'{others}",
        f"{_hint(first, known)}give a model's name, or a pattern with * in it; {_LISTED}",
    )


def _is_in(known: pl.Series, pattern: str) -> bool:
    return not known.to_frame().filter(matches(known.name, pattern)).is_empty()


def _values(frame: pl.LazyFrame, column: str) -> pl.Series:
    """The different values of a column, sorted."""
    return frame.select(pl.col(column).drop_nulls().unique().sort()).collect()[column]


def _hint(pattern: str, known: pl.Series) -> str:
    return did_you_mean(pattern.replace("*", ""), known)
