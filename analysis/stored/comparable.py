"""What must be equal before two figures may be compared."""

import polars as pl

from fleetrank.analysis.errors import NotComparableError

EQUAL_INSIDE_PLATFORM = ("memory_metric", "sample_kind", "runtime_version", "options", "origin")
"""Rankings compare models inside one platform; these would rank the tools instead."""
IDENTITY = ("card_sha256", "weights_id", "input_size")
"""A model is the same on two platforms when these are equal; its name alone says little."""


def differences(cells: pl.DataFrame) -> dict[str, str]:
    """What differs inside each platform that has to be equal, platform to text; sorted."""
    unlike = (
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
    return dict(unlike.iter_rows())


def comparable_cells(cells: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Cells that may be ranked inside their platform, and what was left out and why.

    Adds `identity`, the name under which a model is looked for on other platforms: equal only
    when card, weights and input size are. A model measured twice on one platform (with other
    exporter options, say) is left out there: neither figure is the model's.

    Raises:
        NotComparableError: no platform is left; the message lists the differences.
    """
    unlike = differences(cells)
    kept = _with_identity(cells.filter(~pl.col("platform_key").is_in(list(unlike))))
    if kept.is_empty():
        listed = "; ".join(f"{platform} has {text}" for platform, text in unlike.items())
        raise NotComparableError(
            f"every platform mixes what must be equal inside it: {listed}",
            "choose one sweep with --sweep, or measure the platform anew",
        )
    twice = pl.len().over("platform_key", "identity") > 1
    notes = [f"Dropped: {platform}, which mixes {text}." for platform, text in unlike.items()]
    notes += [
        f"Dropped: {model} on {platform}, measured there with unlike exporter options."
        for model, platform in kept.filter(twice).select("identity", "platform_key").unique()
        .sort("platform_key", "identity").iter_rows()
    ]  # fmt: skip
    notes += [
        f"{model} was measured with unlike cards, weights or input sizes; it is compared only "
        "where they are equal."
        for model in _names_of_several(kept)
    ]
    return kept.filter(~twice), tuple(notes)


def _with_identity(cells: pl.DataFrame) -> pl.DataFrame:
    """The model's name, followed by weights, card and size where one name means several.

    What an imported row does not state contradicts nothing: it has our card's name only where
    the two were declared equal.
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
