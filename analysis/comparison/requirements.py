"""What a user can require of a comparison beyond "no cell is slower"."""

from collections.abc import Sequence
from enum import StrEnum

from fleetrank.analysis.arrays.equivalence import Limits
from fleetrank.analysis.comparison.cell_verdicts import ComparedCell
from fleetrank.analysis.comparison.changes import Verdict
from fleetrank.analysis.comparison.comparison import Comparison
from fleetrank.analysis.comparison.comparison_notes import percent
from fleetrank.foundation.wording import count_of


class Requirement(StrEnum):
    """Something that every cell must meet, also a cell that could not be compared."""

    SAME = "same"
    """It is shown to be the same within the margin."""
    NOT_SLOWER = "not slower"
    """It is shown not to be slower by the margin or more."""
    POWER = "power"
    """A change as large as the margin, of this cell alone, is found with a probability of 80 %."""


_WORDS = {
    Requirement.SAME: "not shown to be the same within {margin}",
    Requirement.NOT_SLOWER: "not shown to be less than {margin} slower",
    Requirement.POWER: "too noisy or with too few repeats to find a change of {margin}",
}


def unmet_requirements(found: Comparison, wanted: Sequence[Requirement]) -> tuple[str, ...]:
    """A text for each requirement that some cell does not meet, with the number of such cells.

    All cells must meet it, so a wrong "all are the same" has a probability of at most alpha
    without any adjustment over the cells (Berger 1982).
    """
    limits, margin = found.limits, percent(found.limits.margin)
    texts = []
    for requirement in wanted:
        n = sum(not _is_met(cell, requirement, limits) for cell in found.cells)
        if n:
            words = _WORDS[requirement].format(margin=margin)
            texts.append(f"{count_of(n, 'cell')} {words}")
    return tuple(texts)


def unmet_by(cell: ComparedCell, wanted: Sequence[Requirement], limits: Limits) -> tuple[str, ...]:
    """A text for each requirement that this cell does not meet."""
    margin = percent(limits.margin)
    return tuple(
        _WORDS[one].format(margin=margin) for one in wanted if not _is_met(cell, one, limits)
    )


def _is_met(cell: ComparedCell, requirement: Requirement, limits: Limits) -> bool:
    if requirement is Requirement.SAME:
        return cell.verdict is Verdict.SAME
    if requirement is Requirement.NOT_SLOWER:
        return cell.p_not_slower is not None and cell.p_not_slower <= limits.alpha
    ratio = cell.detectable_ratio
    return ratio is not None and ratio <= 1 + limits.margin
