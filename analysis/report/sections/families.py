"""One sentence for each family; a rank correlation only if the family has enough models."""

from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS
from fleetrank.analysis.report.sections.headline import TIER_NAMES, interest
from fleetrank.foundation.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLine:
    """One family's sentence."""

    family: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLines:
    """Sentences of all families about one pair of tiers, or all pairs of platforms."""

    about: str
    lines: tuple[FamilyLine, ...]


def family_lines(predictability: pl.DataFrame) -> FamilyLines | None:
    """Sentences from the table `predictability` for the pair of tiers shown first on the page.

    Without a pair of tiers they are medians over pairs of platforms; `None` without any pair.
    """
    if predictability.is_empty():
        return None
    tiers = predictability.filter(pl.col("level") == "tier")
    directions = tiers.select("source", "target").unique(maintain_order=True).rows()
    if directions:
        source, target = min(directions, key=lambda pair: interest(*pair))
        rows = tiers.filter((pl.col("source") == source) & (pl.col("target") == target))
        about = f"from {TIER_NAMES[source]} to {TIER_NAMES[target]}"
    else:
        rows = over_pairs(predictability)
        n_pairs = predictability.select("source", "target").n_unique()
        about = f"medians over {count_of(n_pairs, 'pair')} of platforms, source to target"
    lines = tuple(
        FamilyLine(family=str(row["family"]).replace("_", " "), sentence=_sentence(row))
        for row in rows.filter((pl.col("family") != "all") & (pl.col("n_models") > 0)).iter_rows(
            named=True
        )
    )
    return FamilyLines(about=about, lines=lines) if lines else None


def over_pairs(predictability: pl.DataFrame) -> pl.DataFrame:
    """Medians over the rows of level `pair`, by family; used instead of tiers on one device."""
    figures = ("rho", "mean_abs_shift", "mean_error_percent")
    pairs = predictability.filter(pl.col("level") == "pair")
    return pairs.group_by("family", maintain_order=True).agg(
        pl.col("n_models").max(),
        pl.len().cast(pl.Int64).alias("n_pairs"),
        *(pl.col(name).median() for name in figures),
    )


def _sentence(row: dict[str, object]) -> str:
    n = int(str(row["n_models"] or 0))
    parts = [count_of(n, "model")]
    if row["rho"] is not None:
        parts.append(f"rho {float(str(row['rho'])):.2f} inside the family")
    elif n < MIN_MODELS:
        parts.append("too few for a rank correlation")
    else:
        parts.append("no rank correlation")
    if row["mean_abs_shift"] is not None:
        places = float(str(row["mean_abs_shift"]))
        parts.append(f"average rank change {places:.1f}")
    if row["mean_error_percent"] is not None:
        error = float(str(row["mean_error_percent"]))
        parts.append(f"its latency is predicted with a mean error of {error:.0f} %")
    return ", ".join(parts)
