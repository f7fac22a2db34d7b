"""The pairs of platforms that a selection names, and how many of them a table lists."""

import itertools
from collections.abc import Sequence

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.stored.selection import Selection, fits_platform
from fleetrank.foundation.wording import count_of

MAX_LISTED_PAIRS = 5000
"""More pairs are not listed; means over tiers are still computed."""
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

    Raises:
        NoDataError: fewer than two platforms match.
    """
    sources, targets = chosen_platforms(panel, selection)
    if pairs := [(i, j) for i in sources for j in targets if i != j]:
        return pairs
    raise _nothing_to_compare(panel)


def chosen_platforms(panel: Panel, selection: Selection) -> tuple[list[int], list[int]]:
    """Columns of the sources and of the targets that the selection names."""
    return (
        _chosen(panel, selection.source, selection.source_tier),
        _chosen(panel, selection.target, selection.target_tier),
    )


def unlisted(pairs: Sequence[Pair]) -> str:
    """A note that too many pairs exist to list them, and how to see some."""
    return (
        f"{count_of(len(pairs), 'pair')} of platforms are not listed (over {MAX_LISTED_PAIRS}): "
        "choose fewer with --source or --target."
    )


def _nothing_to_compare(panel: Panel) -> NoDataError:
    known = ", ".join([*panel.keys[:_NAMED], *(["..."] if len(panel.keys) > _NAMED else [])])
    return NoDataError(
        "no two platforms in the selection can be compared",
        f"measured platforms: {known}; " + " ".join(panel.notes),
    )


def _chosen(panel: Panel, pattern: str | None, tier: str | None) -> list[int]:
    return panel.platforms.with_row_index("at").filter(fits_platform(pattern, tier))["at"].to_list()
