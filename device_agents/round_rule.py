"""The order of the cells in a round, and the rule that ends the round."""

import math
from collections.abc import Iterator, Sequence
from random import Random
from statistics import NormalDist, fmean

_CONFIDENCE = 0.95


def orders(n_cells: int, seed: int) -> Iterator[tuple[int, ...]]:
    """The order of the cells in each cycle of blocks, without end.

    Seeded random; every second cycle reverses the one before it, so that a linear drift affects
    all cells of the two cycles equally.
    """
    random = Random(seed)  # noqa: S311 - an order, not a secret
    while True:
        order = list(range(n_cells))
        random.shuffle(order)
        yield tuple(order)
        yield tuple(reversed(order))


def difference_half_width(block_medians: Sequence[Sequence[float]]) -> float | None:
    """Half-width of the 95 % interval of the difference between two cells' mean log latencies.

    Model: log latency = cell + block + rest. The rest is pooled over all cells, with
    (n_cells - 1)(n_blocks - 1) degrees of freedom, as in a two-way layout without replication
    (R. A. Fisher, The Design of Experiments, 1935: randomised blocks).

    Args:
        block_medians: medians in ns, by cell (at least 2) and block; the same number of blocks.

    Returns:
        The half-width, as a natural logarithm (0.01 is 1 %); `None` with fewer than 2 blocks or
        cells.
    """
    n_cells, n_blocks = len(block_medians), min(map(len, block_medians), default=0)
    if n_cells < 2 or n_blocks < 2:
        return None
    logs = [[math.log(median) for median in medians[:n_blocks]] for medians in block_medians]
    blocks = [fmean(column) for column in zip(*logs, strict=True)]
    rest = [
        value - fmean(row) - block + fmean(blocks)
        for row in logs
        for value, block in zip(row, blocks, strict=True)
    ]
    freedom = (n_cells - 1) * (n_blocks - 1)
    variance = sum(value * value for value in rest) / freedom
    return student_t(freedom) * math.sqrt(2 * variance / n_blocks)


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to 1 % from 3 degrees of freedom on.

    The measuring process has no SciPy. With 1 or 2 degrees of freedom the exact values are used.

    Source: Cornish-Fisher expansion, Abramowitz and Stegun (1964), formula 26.7.5.
    """
    exact = {1: 12.706, 2: 4.303}
    if freedom in exact:
        return exact[freedom]
    z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
