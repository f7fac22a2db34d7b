"""Which workload a table is about: figures of two workloads are never compared."""

from collections.abc import Iterable, Sequence

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.foundation.wording import did_you_mean, few_of
from fleetrank.foundation.workload import IMAGE, Workload

WORKLOAD = "workload"
_NAMED = 8
"""A sentence names at most this many workloads."""


def known_workload() -> pl.Expr:
    """The workload of a row; `image` where none is stored."""
    return pl.col(WORKLOAD).fill_null(str(IMAGE))


def workloads_of(rows: pl.LazyFrame) -> tuple[str, ...]:
    """The workloads of some rows, in the order of lists: images, prompts, steps by length."""
    known = rows.select(known_workload().unique()).collect()[WORKLOAD]
    return tuple(sorted(known, key=_order))


def usual_workload(known: Sequence[str]) -> str:
    """The workload of a selection that names none: `image`, or the only one that is known.

    Raises:
        AnalysisError: several are known, not of images.
    """
    if str(IMAGE) in known or not known:
        return str(IMAGE)
    if len(known) > 1:
        raise AnalysisError(
            f"the results have {len(known)} workloads, and a table is about one: {named(known)}",
            f"choose one, such as `workload={known[0]}`",
        )
    return known[0]


def refuse_absent_workload(rows: pl.LazyFrame, wanted: str | None) -> None:
    """Compares a wanted workload with all rows, also failed ones.

    Raises:
        NoDataError: no row has it; the message names the workloads that exist.
    """
    if wanted is None or wanted in (known := workloads_of(rows)):
        return
    raise NoDataError(
        f"no row has the workload '{wanted}'",
        f"{did_you_mean(wanted, known)}the results have {named(known) or 'none'}",
    )


def other_workloads_note(known: Iterable[str], chosen: str) -> tuple[str, ...]:
    """A note that further workloads of the selected rows are not in a table."""
    others = [name for name in known if name != chosen]
    if not others:
        return ()
    return (f"Not shown: {named(others)}; choose one with `workload={others[0]}`.",)


def named(workloads: Sequence[str]) -> str:
    """The first few workloads, as a list for a sentence."""
    return few_of(workloads, _NAMED)


def _order(text: str) -> tuple[tuple[int, int, int, int, str], str]:
    """Of a text that a newer version wrote: after all others."""
    try:
        return Workload.parse(text).sort_key, text
    except ValueError:
        return (99, 0, 0, 0, ""), text
