"""The facts that must be equal before two figures are compared."""

from collections.abc import Iterable, Mapping

import polars as pl

from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.stored.load import newest_sweep
from fleetrank.foundation.wording import count_of

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

    A platform whose sweeps differ in a fact of `EQUAL_INSIDE_PLATFORM` keeps the cells that have
    the facts of its newest sweep. One that mixes them inside a sweep is left out.

    Adds `identity`, the name that identifies a model on other platforms: it is equal only if card,
        weights and input size are. A model measured twice on one platform (for example with other
        exporter options) is left out there: it is not known which figure is the model's.

    Raises:
        NotComparableError: no platform remains; the message lists the differences.
    """
    texts = differences(cells)
    stale = cells.filter(_is_stale(cells, texts))
    current = cells.join(stale, on=("model", "platform_key", "cell_key"), how="anti")
    mixed = differences(current)
    kept = _with_identity(current.filter(~pl.col("platform_key").is_in(list(mixed))))
    if kept.is_empty():
        listed = "; ".join(f"{platform} has {text}" for platform, text in mixed.items())
        raise NotComparableError(
            f"every platform mixes facts that must be equal inside it: {listed}",
            "choose one sweep with --sweep, or measure the platform again",
        )
    twice = pl.len().over("platform_key", "identity") > 1
    notes = [f"Dropped: {platform}, which mixes {text}." for platform, text in mixed.items()]
    notes += _stale_note(stale, texts)
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


def _is_stale(cells: pl.DataFrame, platforms: Iterable[str]) -> pl.Series:
    """Whether a cell of these platforms has a fact that its platform's newest sweep has not.

    A fact that one side does not state, or that the newest sweep mixes, makes no cell stale.
    """
    newest = (
        cells.filter(pl.col("platform_key").is_in(list(platforms)))
        .with_columns(newest_sweep().over("platform_key").alias("newest"))
        .filter(pl.col("sweep_id") == pl.col("newest"))
        .group_by("platform_key")
        .agg(_only_value(fact) for fact in EQUAL_INSIDE_PLATFORM)
    )
    beside = cells.join(
        newest, on="platform_key", how="left", suffix="_newest", maintain_order="left"
    )
    return beside.select(
        pl.any_horizontal(
            (pl.col(fact) != pl.col(f"{fact}_newest")).fill_null(value=False)
            for fact in EQUAL_INSIDE_PLATFORM
        ).alias("is_stale")
    )["is_stale"]


def _stale_note(stale: pl.DataFrame, texts: Mapping[str, str]) -> list[str]:
    if stale.is_empty():
        return []
    platforms = stale["platform_key"].unique().sort().to_list()
    first = f"{platforms[0]} ({texts[platforms[0]]})"
    more = f" and {len(platforms) - 1} more" if len(platforms) > 1 else ""
    return [
        f"Dropped: {count_of(stale.height, 'older value')} on {first}{more}: the values of the "
        "newest sweep of a platform count."
    ]


def _only_value(fact: str) -> pl.Expr:
    values = pl.col(fact).drop_nulls()
    return pl.when(values.n_unique() == 1).then(values.first()).alias(fact)


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
