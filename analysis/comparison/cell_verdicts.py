"""One cell in two sweeps: its medians, its test and its verdict."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.arrays.significance import MIN_PROCESSES, cliffs_delta, mann_whitney
from fleetrank.analysis.comparison.comparison_facts import MUST_BE_EQUAL
from fleetrank.analysis.stored.columns import NS_PER_MS
from fleetrank.foundation.wording import count_of

Row = dict[str, object]
"""One cell of the comparison; unknown values are left out."""
Cells = Mapping[str, Mapping[str, object]]
"""Cell key to model, platform, process medians and facts."""


class Verdict(StrEnum):
    """The result of the comparison for one cell."""

    SLOWER = "slower"
    FASTER = "faster"
    UNDECIDED = "undecided"
    """Above the threshold and unlikely alone, but one such cell among many may be chance."""
    SAME = "same"
    REFUSED = "refused"
    """Measured in both sweeps, but not comparable or with too few processes for a test."""
    ONE_SIDED = "one_sided"
    """Measured in one of the two sweeps only."""


_ORDER = {verdict: number for number, verdict in enumerate(Verdict)}


def compared_rows(a: Cells, b: Cells) -> list[Row]:
    """All cells of both sweeps, tested if both measured them; verdicts are added later."""
    rows = [_compared(a[key], b[key]) for key in sorted(a.keys() & b.keys())]
    compared = {_place(row) for row in rows}
    places = [{_place(cell) for cell in side.values()} for side in (a, b)]
    alone = {_place(cell) for side in (a, b) for cell in side.values()} - compared
    return rows + [
        _alone(*place, is_in_both=all(place in side for side in places)) for place in sorted(alone)
    ]


def _place(cell: Mapping[str, object]) -> tuple[str, str]:
    return str(cell["model"]), str(cell["platform_key"])


def _alone(model: str, platform: str, *, is_in_both: bool) -> Row:
    row: Row = {"model": model, "platform_key": platform}
    if is_in_both:
        reason = "model card, weights or exporter options differ"
        return row | {"verdict": Verdict.REFUSED, "reason": reason}
    return row | {"verdict": Verdict.ONE_SIDED, "reason": "measured in one of the sweeps only"}


def _compared(a: Mapping[str, object], b: Mapping[str, object]) -> Row:
    medians = [np.array(cell["medians_ns"], dtype=np.float64) for cell in (a, b)]
    middle = [float(np.median(values)) for values in medians]
    sizes = [values.size for values in medians]
    row: Row = {
        "model": a["model"],
        "platform_key": a["platform_key"],
        "n_a": sizes[0],
        "n_b": sizes[1],
        "median_a_ms": middle[0] / NS_PER_MS,
        "median_b_ms": middle[1] / NS_PER_MS,
        "ratio": middle[1] / middle[0],
    }
    differing = [f"{name}: {a[name]} | {b[name]}" for name in MUST_BE_EQUAL if a[name] != b[name]]
    if differing:
        return row | {"verdict": Verdict.REFUSED, "reason": "; ".join(differing)}
    if min(sizes) < MIN_PROCESSES:
        few = count_of(min(sizes), "process", "processes")
        reason = f"{few}, at least {MIN_PROCESSES} a side needed"
        return row | {"verdict": Verdict.REFUSED, "reason": reason}
    _u, p_value = mann_whitney(*medians)
    return row | {"p_value": p_value, "cliffs_delta": cliffs_delta(*medians)}


def with_verdicts(rows: Sequence[Row], threshold: float, alpha: float) -> list[Row]:
    """Adjusts p over all tested cells and sets each verdict; the most important come first."""
    known = [row.get("p_value") for row in rows]
    adjusted = adjust_p([float(str(p)) if p is not None else None for p in known])
    judged = [
        row if p is None else {**row, "p_adjusted": p, **_judge(row, p, threshold, alpha)}
        for row, p in zip(rows, adjusted, strict=True)
    ]
    return sorted(judged, key=_by_weight)


def _judge(row: Row, p_adjusted: float, threshold: float, alpha: float) -> Row:
    ratio, p_value = float(str(row["ratio"])), float(str(row["p_value"]))
    is_large = ratio >= 1 + threshold or ratio <= 1 / (1 + threshold)
    if is_large and p_adjusted <= alpha:
        return {"verdict": Verdict.SLOWER if ratio > 1 else Verdict.FASTER}
    if is_large and p_value <= alpha:
        reason = (
            "unlikely alone, but possible by chance among so many cells: measure with more repeats"
        )
        return {"verdict": Verdict.UNDECIDED, "reason": reason}
    if p_adjusted <= alpha:
        return {"verdict": Verdict.SAME, "reason": "a difference below the threshold"}
    return {"verdict": Verdict.SAME}


def _by_weight(row: Row) -> tuple[int, float, str, str]:
    ratio = row.get("ratio")
    distance = 0.0 if ratio is None else -abs(np.log(float(str(ratio))))
    verdict = _ORDER[Verdict(str(row["verdict"]))]
    return verdict, distance, str(row["model"]), str(row["platform_key"])
