"""The pairs of platforms that a selection names, and how many of them a table lists."""

import itertools
from collections.abc import Sequence

import numpy as np

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection, fits_platform
from fleetrank.foundation.wording import count_of

MAX_LISTED_PAIRS = 5000
"""More pairs are not listed; means over tiers are still computed."""
MAX_DIRECTED_PAIRS = 500_000
"""Those of 700 platforms. Each table over more takes 3 to 9 s per million pairs, and 0.7 GB."""
_NAMED = 20
"""Maximum platforms in an error message."""


def select_pairs(panel: Panel, selection: Selection) -> list[Pair]:
    """Every selected pair, each once, source first.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    sources, targets = chosen_platforms(panel, selection)
    if sources == targets:
        pairs = list(itertools.combinations(sources, 2))
    else:
        unordered = {
            frozenset((i, j)): (i, j) for i in reversed(sources) for j in targets if i != j
        }
        pairs = sorted(unordered.values())
    if not pairs:
        raise _nothing_to_compare(panel)
    return pairs


def directed_pairs(panel: Panel, selection: Selection) -> list[Pair]:
    """Every ordered pair from a chosen source to another platform that is a chosen target.

    Above `MAX_DIRECTED_PAIRS` a random part of them, drawn with the seed of the selection.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    sources, targets = chosen_platforms(panel, selection)
    n_pairs = _count_directed(sources, targets)
    if n_pairs == 0:
        raise _nothing_to_compare(panel)
    if n_pairs <= MAX_DIRECTED_PAIRS:
        return [(i, j) for i in sources for j in targets if i != j]
    n_cells, rng = len(sources) * len(targets), np.random.default_rng(selection.seed)
    drawn = rng.choice(n_cells, MAX_DIRECTED_PAIRS, replace=False, shuffle=False)
    at, to = np.divmod(np.sort(drawn), len(targets))
    columns = zip(np.array(sources)[at].tolist(), np.array(targets)[to].tolist(), strict=True)
    return [(i, j) for i, j in columns if i != j]


def _count_directed(sources: list[int], targets: list[int]) -> int:
    return len(sources) * len(targets) - len(set(sources) & set(targets))


def chosen_platforms(panel: Panel, selection: Selection) -> tuple[list[int], list[int]]:
    """Columns of the sources and of the targets that the selection names."""
    return (
        _chosen(panel, selection.source, selection.source_tier),
        _chosen(panel, selection.target, selection.target_tier),
    )


def unlisted(pairs: Sequence[Pair], session: Session | None = None) -> str:
    """A note that too many pairs exist to list them, and how to see some.

    With the `session` of directed pairs it also says how many of them were drawn, if not all.
    """
    if session is not None and (note := sampled(session, len(pairs))):
        return f"{note[0]} None is listed: choose fewer with `source=` or `target=`."
    return (
        f"{count_of(len(pairs), 'pair')} of platforms are not listed (over {MAX_LISTED_PAIRS}): "
        "choose fewer with `source=` or `target=`."
    )


def sampled(session: Session, n_used: int) -> tuple[str, ...]:
    """A note that figures use a part of the directed pairs; empty if they use all."""
    n_all = _count_directed(*chosen_platforms(session.panel, session.selection))
    if n_all <= MAX_DIRECTED_PAIRS:
        return ()
    return (
        f"Figures over a random {n_used:,} of {n_all:,} directed pairs of platforms (seed "
        f"{session.selection.seed}); this moves a mean over n of them by up to 2 / sqrt(n) of "
        "their standard deviation, which intervals do not contain.",
    )


def _nothing_to_compare(panel: Panel) -> NoDataError:
    known = ", ".join([*panel.keys[:_NAMED], *(["..."] if len(panel.keys) > _NAMED else [])])
    more = "measure it on another device or runtime, or select more rows; "
    return NoDataError(
        "no two platforms in the selection can be compared",
        f"{more if len(panel.keys) == 1 else ''}measured platforms: {known}; "
        + " ".join(panel.notes),
    )


def _chosen(panel: Panel, pattern: str | None, tier: str | None) -> list[int]:
    return panel.platforms.with_row_index("at").filter(fits_platform(pattern, tier))["at"].to_list()
