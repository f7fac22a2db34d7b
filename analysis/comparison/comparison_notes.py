"""What a comparison says beside its rows: how small a change it can find, and what it means."""

import math
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from fleetrank.analysis.arrays.equivalence import MIN_FOR_VARIANCE, POWER, Limits, first_enough
from fleetrank.analysis.arrays.significance import MIN_PROCESSES, smallest_p
from fleetrank.analysis.comparison.cell_verdicts import Cells, ComparedCell, compare_cells
from fleetrank.analysis.comparison.changes import Verdict

SESSION_NOTE = (
    "Each sweep is one session: what made one session slower, such as a warmer or busier host, is "
    "part of every ratio, and more repeats do not remove it."
)


def percent(share: float) -> str:
    """`5 %`, with at most three digits."""
    return f"{100 * share:.3g} %"


def verdict_words(verdict: Verdict, limits: Limits) -> str:
    """The verdict as a reader sees it: a sameness always with its margin."""
    if verdict is Verdict.SAME:
        return f"same within {percent(limits.margin)}"
    return verdict.value.replace("_", "-")


def worded_verdicts(frame: pl.DataFrame, limits: Limits) -> pl.DataFrame:
    """The frame with the column `verdict` in words."""
    words = {verdict.value: verdict_words(verdict, limits) for verdict in Verdict}
    return frame.with_columns(pl.col("verdict").replace(words))


def detectable_of(cells: Sequence[ComparedCell]) -> float | None:
    """The ratio that is found whichever single cell changes: the largest over the tested cells.

    `None` if no cell was tested, or a change of one of them cannot be found.
    """
    ratios = [cell.detectable_ratio for cell in cells if cell.p_value is not None]
    known = [ratio for ratio in ratios if ratio is not None]
    return max(known) if known and len(known) == len(ratios) else None


def power_note(cells: Sequence[ComparedCell], limits: Limits) -> tuple[str, ...]:
    """The smallest change that this comparison finds."""
    tested = [cell for cell in cells if cell.p_value is not None]
    if not tested:
        return ()
    found = detectable_of(cells)
    if found is not None:
        return (
            f"Smallest change of a single cell that is found with a probability of "
            f"{percent(POWER)}: {percent(found - 1)} in the noisiest cell.",
        )
    smallest = max(smallest_p(cell.n_a or 0, cell.n_b or 0) for cell in tested)
    needed = math.ceil(smallest * len(tested) / limits.alpha)
    repeats = _repeats_of_single(len(tested), limits)
    return (
        f"With these repeats p is {smallest:.2g} at best: fewer than {needed} changed cells "
        f"among {len(tested)} cannot be separated from chance; {repeats} repeats a side are the "
        "fewest that find a single changed cell.",
    )


def rounds_note(a: Cells, b: Cells, limits: Limits) -> tuple[str, ...]:
    """What rounds mean for this comparison, with the smallest change without their use."""
    sides = [any(cell.took_turns for cell in side.values()) for side in (a, b)]
    if not any(sides):
        return ()
    if not all(sides):
        return (
            "One sweep was measured in rounds and the other was not: models that take turns are a "
            "few per cent slower for this reason alone. Measure both in the same way.",
        )
    by_median = [
        {key: replace(cell, compared_ns=cell.medians_ns) for key, cell in side.items()}
        for side in (a, b)
    ]
    found = detectable_of(compare_cells(by_median[0], by_median[1], limits))
    without = "not any" if found is None else f"{percent(found - 1)} in the noisiest cell"
    return (
        "Models took turns: the effect of the host on each round is subtracted from its cells. "
        f"Smallest change that their process medians alone would show: {without}.",
    )


def _repeats_of_single(n_tested: int, limits: Limits) -> int | None:
    """Repeats a side with which one changed cell among all can be significant."""
    level = limits.alpha / n_tested
    return first_enough(lambda n: float(smallest_p(n, n) <= level), range(MIN_PROCESSES, 1000))


def verdict_meaning(limits: Limits) -> tuple[str, ...]:
    """What the verdicts and their figures mean."""
    margin, alpha = percent(limits.margin), f"{limits.alpha:g}"
    return (
        f"verdict: slower, faster: p_adjusted at most {alpha} and a ratio at least {margin} away "
        f"from 1. same: shown to lie within {margin}, by two one-sided t tests on log medians "
        "(Schuirmann 1987; Welch 1947). undecided: neither is shown. A missing difference in a "
        "test is not evidence that nothing differs.",
        "p_not_slower: p of 'slower by the margin or more'; p_not_faster: of 'faster by the "
        "margin or more'; p_same_adjusted: the larger one, Benjamini-Hochberg over the rows with "
        f"at least {MIN_FOR_VARIANCE} processes a side. ratio_low to ratio_high: "
        f"{percent(1 - 2 * limits.alpha)} interval of the ratio of geometric means.",
        "detectable_ratio: the smallest ratio that the rank test finds with a probability of "
        f"{percent(POWER)} if only this row differs. more_repeats: how many more repeats a side "
        f"decide with a probability of {percent(POWER)}, if the estimates are right (Phillips "
        "1990).",
    )


def explanation_of(limits: Limits) -> tuple[str, ...]:
    """What the columns mean and how they are computed."""
    return (
        "Process medians of cells that both sweeps measured with the same card, weights and "
        "platform; ratio: median of b over median of a, above 1 when b is slower.",
        "p_value: Mann-Whitney U, two-sided, exact; p_adjusted: Benjamini-Hochberg over the "
        f"tested cells; cells with fewer than {MIN_PROCESSES} processes a side are not tested.",
        *verdict_meaning(limits),
        "A third sweep of the unchanged code shows how much two sessions differ.",
    )
