"""Directed pairs for statistics with a direction, and their groups by tiers."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.pairs import Pair

_MAX_VALUES = 2_000_000
"""Models x pairs processed at once: 16 MB an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Directed pairs from one tier to another.

    Attributes:
        at: positions of its pairs in the caller's sequence, pairs of one cluster side by side.
        starts: where each cluster (a pair of device models) begins in `at`.
    """

    source: str
    target: str
    at: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]


def grouped(names: Sequence[tuple[str, str]], clusters: Sequence[str]) -> Iterator[Group]:
    """Groups pairs by `names` (source and target, a tier each), sorted; clusters inside."""
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        members[name].append(position)
    for (source, target), positions in sorted(members.items()):
        _, code = np.unique([clusters[position] for position in positions], return_inverse=True)
        order = np.argsort(code, kind="stable")
        starts = np.flatnonzero(np.diff(code[order], prepend=-1))
        yield Group(source=source, target=target, at=np.array(positions)[order], starts=starts)


def chunks(
    group: Group, pairs: Sequence[Pair], n_rows: int
) -> Iterator[tuple[list[Pair], npt.NDArray[np.int64]]]:
    """A few whole clusters at a time, as their pairs and where each cluster begins in them.

    Arrays of `n_rows` rows over such a chunk stay small, so that the pairs of a fleet need not be
    in memory together.
    """
    limit = max(1, _MAX_VALUES // n_rows)
    bounds = np.append(group.starts, group.at.size)
    first = 0
    while first < group.starts.size:
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + limit, "right")) - 1)
        mine = [pairs[at] for at in group.at[bounds[first] : bounds[last]]]
        yield mine, bounds[first:last] - bounds[first]
        first = last


def cluster_means(values: Floats, starts: npt.NDArray[np.int64]) -> Floats:
    """Means of the known values inside each cluster: from (..., n_pairs) to (..., n_clusters).

    NaN for a cluster without known values.
    """
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts, axis=-1)
    return _quotient(sums, np.add.reduceat(known, starts, axis=-1, dtype=np.int64))


def known_mean(values: Floats, axis: int) -> Floats:
    """Mean of the known values along `axis`; NaN without any."""
    known = np.isfinite(values)
    return _quotient(np.where(known, values, 0.0).sum(axis=axis), known.sum(axis=axis))


def known_median(values: Floats, axis: int) -> Floats:
    """Median of the known values along `axis`; NaN without any."""
    count = np.isfinite(values).sum(axis=axis, keepdims=True)
    # NaN sorts last, so the known ones come first.
    in_order = np.sort(values, axis=axis)
    low = np.take_along_axis(in_order, np.maximum(count - 1, 0) // 2, axis=axis)
    high = np.take_along_axis(in_order, count // 2, axis=axis)
    middle: Floats = ((low + high) / 2).squeeze(axis)
    return middle


def _quotient(sums: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means
