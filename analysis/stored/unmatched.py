"""Names in a selection that no stored row has: they are probably misspelt."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.chosen_workload import refuse_absent_workload
from fleetrank.analysis.stored.name_patterns import (
    ANY_PRECISION,
    fits_model,
    fits_platform,
    place_of,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import count_of, did_you_mean

_LISTED = "`fleetrank report show latency` lists them"


def matched(frame: pl.LazyFrame, selection: Selection) -> Selection:
    """The selection with whole names of models, by all rows, also failed ones.

    Raises:
        NoDataError: no row has a platform, model or workload of this name; the remedy names the
            nearest.
        AnalysisError: a name is the end of several models.
    """
    _refuse_platform(frame, "source", selection.source, selection.source_tier)
    _refuse_platform(frame, "target", selection.target, selection.target_tier)
    refuse_absent_workload(frame, selection.workload)
    return with_whole_names(frame, selection)


def _refuse_platform(frame: pl.LazyFrame, word: str, pattern: str | None, tier: str | None) -> None:
    if pattern is None and tier is None:
        return
    fits = frame.filter(fits_platform(pattern, tier)).select("device").head(1)
    if not fits.collect().is_empty():
        return
    asked = " and ".join(text for text in (pattern and f"'{pattern}'", tier) if text)
    known = frame.select(pl.col("device").drop_nulls().unique().sort()).collect()["device"]
    raise NoDataError(
        f"no platform fits the {word} {asked}",
        f"{_hint(pattern or '', known)}give a device's name, or a platform with * in it; {_LISTED}",
    )


def with_whole_names(frame: pl.LazyFrame, selection: Selection) -> Selection:
    """The selection, in which `n3` is `lab:n3` if no model is named `n3`; with a note on each.

    Raises:
        NoDataError: no row has a model of a name.
        AnalysisError: a name is the end of several models.
    """
    if not selection.models:
        return selection
    known = frame.select("model", "precision").unique().collect()
    stored, is_precise = known["model"].unique().sort(), selection.precision == ANY_PRECISION
    absent = [one for one in selection.models if known.filter(fits_model(one)).is_empty()]
    places = {one: place_of(one, stored.to_list(), is_precise=is_precise) for one in absent}
    whole = {one: str(stored[at]) for one, at in places.items() if at is not None}
    _refuse([one for one in absent if one not in whole], stored)
    return replace(
        selection,
        model=[whole.get(one, one) for one in selection.models],
        notes=(*selection.notes, *(f"'{end}' is {name}." for end, name in whole.items())),
    )


def _refuse(lacking: Sequence[str], stored: pl.Series) -> None:
    if not lacking:
        return
    first, more = lacking[0], len(lacking) - 1
    others = f", nor {count_of(more, 'other name')} of the selection" if more else ""
    raise NoDataError(
        f"no model fits '{shortened(first)}'{others}",
        f"{_hint(first, stored)}give a model's name, or a pattern with * in it; {_LISTED}",
    )


def _hint(pattern: str, known: pl.Series) -> str:
    return did_you_mean(pattern.replace("*", ""), known)
