"""The cells of a table, the facts that must be equal before two are compared, and its notes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.errors import NoDataError, NotComparableError
from fleetrank.analysis.stored.cells_table import MIN_REPEATS, cell_values
from fleetrank.analysis.stored.exclusions import exclusion_notes, not_excluded
from fleetrank.analysis.stored.load import newest_sweep
from fleetrank.analysis.stored.selection import Selection, matches
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


_UNREAL = {"simulated": "SIMULATED DATA", "virtual": "DATA FROM VIRTUAL DEVICES"}
_NAMED = 6
"""A sentence names at most this many devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Selected cells, rows of `cells_table.cell_values`, with their notes."""

    cells: pl.DataFrame
    notes: tuple[str, ...]


def select_attempts(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """All selected attempts that are not excluded, including failures."""
    return not_excluded(select_stored(frame, selection))


def select_stored(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """All selected attempts, including those excluded by hand.

    Source, target and tiers choose what is compared; they do not filter rows here.
    """
    chosen = frame.filter(pl.col("origin").is_in(list(selection.origins)))
    for name, wanted in (
        ("sweep_id", selection.sweep),
        ("runtime", selection.runtime),
        ("precision", selection.precision),
        ("family", selection.family),
        *selection.where,
    ):
        if wanted is not None:
            chosen = chosen.filter(pl.col(name) == wanted)
    if selection.model is not None:
        chosen = chosen.filter(matches("model", selection.model))
    return chosen


def select_cells(frame: pl.LazyFrame, selection: Selection) -> Scope:
    """Values of the selected cells, and the notes of every table; see `session.Session.cells`.

    Raises:
        NoDataError: the selection has no measurements, or every attempt failed.
    """
    attempts = select_attempts(frame, selection)
    cells = cell_values(attempts)
    excluded = exclusion_notes(select_stored(frame, selection))
    if cells.is_empty():
        raise NoDataError(
            " ".join(("no successful measurement matches the selection.", *excluded)).rstrip("."),
            "widen the selection (`--include-simulated` adds virtual and simulated devices), or "
            "see `fleetrank report show dropped`"
            + (" and `fleetrank results exclude`" if excluded else ""),
        )
    lost = _lost(attempts, cells)
    notes = (*_banner(cells), _counts(cells), *_memory(cells), *excluded, *lost)
    return Scope(cells=cells, notes=notes)


def _banner(cells: pl.DataFrame) -> tuple[str, ...]:
    parts = {name: cells.filter(pl.col("origin") == name) for name in _UNREAL}
    return tuple(
        f"{_UNREAL[name]}: {_rows_of(part, cells)} ({devices_of(part)})."
        for name, part in parts.items()
        if part.height
    )


def _rows_of(part: pl.DataFrame, cells: pl.DataFrame) -> str:
    """How many of the rows of a table are of one origin."""
    n = cells.height
    return f"all {count_of(n, 'row')}" if part.height == n else f"{part.height} of {n} rows"


def _memory(cells: pl.DataFrame) -> tuple[str, ...]:
    """A note if devices count memory in different ways, which a ratio cannot correct."""
    counted = cells.drop_nulls("memory_metric")
    kinds = sorted(counted["memory_metric"].unique())
    if len(kinds) < 2:
        return ()
    parts = (counted.filter(pl.col("memory_metric") == kind) for kind in kinds)
    counted_by = "; ".join(
        f"{kind} on {devices_of(part)}" for kind, part in zip(kinds, parts, strict=True)
    )
    return (
        "Devices count peak memory in different ways. FRM uses the figures without correction: "
        f"{counted_by}.",
    )


def devices_of(cells: pl.DataFrame) -> str:
    """The devices of some cells; only the first few have their names listed."""
    names = sorted(cells["device"].unique())
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _counts(cells: pl.DataFrame) -> str:
    """How many models, platforms, devices and repeats a table uses."""
    seeds = ", ".join(str(seed) for seed in sorted(cells["seed"].drop_nulls().unique()))
    repeats = sorted(cells["n_repeats"].unique())
    text = (
        f"{count_of(cells['model'].n_unique(), 'model')}, "
        f"{count_of(cells['platform_key'].n_unique(), 'platform')}, "
        f"{count_of(cells['device_model'].n_unique(), 'device model')}; "
        f"seeds of the sweeps: {seeds or 'not recorded'}; "
        f"repeats per cell: {'-'.join(str(n) for n in sorted({repeats[0], repeats[-1]}))}."
    )
    few = int((cells["n_repeats"] < MIN_REPEATS).sum())
    if few:
        text += (
            f" {few} of {cells.height} rows have fewer than {MIN_REPEATS} repeats and no interval."
        )
    return text


def _lost(attempts: pl.LazyFrame, cells: pl.DataFrame) -> tuple[str, ...]:
    """Notes on cells without a valid attempt and on cells with a quality flag."""
    tried = attempts.select("model", "platform_key").unique().collect()
    missing = tried.height - cells.select("model", "platform_key").unique().height
    doubted = int((cells["flags"].list.len() > 0).sum())
    notes = []
    if missing:
        noun = count_of(missing, "model on a platform", "models on platforms")
        notes.append(f"Dropped: {noun} with failed attempts only (table `dropped`).")
    if doubted:
        notes.append(
            f"{doubted} of {cells.height} rows carry a quality flag and are kept (table `quality`)."
        )
    return tuple(notes)
