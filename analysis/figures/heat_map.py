"""How far ranks carry over between platforms, as the columns of a matrix."""

from collections.abc import Mapping

import polars as pl

_FIGURES = ("rho", "low", "high", "null_mean", "null_p95")
_DIGITS = 3


def heat_columns(pairs: pl.DataFrame, positions: Mapping[str, int]) -> dict[str, list[object]]:
    """The rows of level `pair` of one measure of `transfer`, as columns.

    Args:
        pairs: each pair once; rho has no direction.
        positions: number of each platform on the page; pairs with another one are left out.

    Returns:
        `source`, `target` (numbers), `n_models`, the figures to three digits, and `reason`.
    """
    known = pairs.filter(
        pl.col("source").is_in(list(positions)) & pl.col("target").is_in(list(positions))
    )
    return {
        "source": [positions[key] for key in known["source"]],
        "target": [positions[key] for key in known["target"]],
        "n_models": known["n_models"].to_list(),
        **{name: known[name].round(_DIGITS).to_list() for name in _FIGURES},
        "reason": known["reason"].to_list(),
    }
