"""The facts that must be equal before two figures are compared."""

import polars as pl

from fleetrank.analysis.errors import NotComparableError

EQUAL_INSIDE_PLATFORM = ("memory_metric", "sample_kind", "runtime_version", "options", "origin")
"""These must be equal inside a platform: otherwise a ranking would compare tools, not models."""
IDENTITY = ("card_sha256", "weights_id", "input_size")
"""A model is the same on two platforms if these are equal; an equal name is not enough."""


def differences(cells: pl.DataFrame) -> dict[str, str]:
    """Facts that must be equal but differ inside a platform: platform to text, sorted."""
    mixed = (
        cells.unpivot(EQUAL_INSIDE_PLATFORM, index="platform_key", variable_name="fact")
        .drop_nulls("value")
        .group_by("platform_key", "fact")
        .agg(pl.col("value").unique().sort())
        .filter(
            (pl.col("value").list.len() > 1) | pl.col("value").list.first().str.contains(r" \| ")
        )
        .with_columns(pl.format("{}: {}", "fact", pl.col("value").list.join(" | ")).alias("text"))
        .sort("platform_key", "fact")
        .group_by("platform_key", maintain_order=True)
        .agg(pl.col("text").str.join("; "))
    )
    return dict(mixed.iter_rows())


def comparable_cells(cells: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Cells that can be ranked inside their platform, and notes on what was left out and why.

    Adds `identity`, the name that identifies a model on other platforms: it is equal only if card,
        weights and input size are. A model measured twice on one platform (for example with other
        exporter options) is left out there: it is not known which figure is the model's.

    Raises:
        NotComparableError: no platform remains; the message lists the differences.
    """
    mixed = differences(cells)
    kept = _with_identity(cells.filter(~pl.col("platform_key").is_in(list(mixed))))
    if kept.is_empty():
        listed = "; ".join(f"{platform} has {text}" for platform, text in mixed.items())
        raise NotComparableError(
            f"every platform mixes facts that must be equal inside it: {listed}",
            "choose one sweep with --sweep, or measure the platform again",
        )
    twice = pl.len().over("platform_key", "identity") > 1
    notes = [f"Dropped: {platform}, which mixes {text}." for platform, text in mixed.items()]
    notes += [
        f"Dropped: {model} on {platform}, measured there with different exporter options."
        for model, platform in kept.filter(twice).select("identity", "platform_key").unique()
        .sort("platform_key", "identity").iter_rows()
    ]  # fmt: skip
    notes += [
        f"{model} was measured with different cards, weights or input sizes; it is compared only "
        "where they are equal."
        for model in _names_of_several(kept)
    ]
    return kept.filter(~twice), tuple(notes)


def _with_identity(cells: pl.DataFrame) -> pl.DataFrame:
    """The model's name, followed by weights, card and size if one name means several models.

    An imported row may lack these facts: it has our card's name only if the two were declared
        equal.
    """
    several = pl.any_horizontal(
        pl.col(name).drop_nulls().n_unique().over("model") > 1 for name in IDENTITY
    )
    parts = [
        pl.col("weights_id").fill_null("?"),
        pl.col("card_sha256").str.slice(0, 8).fill_null("?"),
        pl.col("input_size").cast(pl.String).fill_null("?"),
    ]
    long = pl.format("{} ({}, card {}, {} px)", "model", *parts)
    return cells.with_columns(pl.when(several).then(long).otherwise("model").alias("identity"))


def _names_of_several(cells: pl.DataFrame) -> list[str]:
    return cells.filter(pl.col("identity") != pl.col("model"))["model"].unique().sort().to_list()
