"""The cells of a table, and the facts that must be equal before two are compared."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import polars as pl

from fleetrank.analysis.errors import NoDataError, NotComparableError
from fleetrank.analysis.stored.cell_notes import notes_on_cells, notes_on_failures, notes_on_noise
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.chosen_workload import (
    WORKLOAD,
    known_workload,
    other_workloads_note,
    usual_workload,
    workloads_of,
)
from fleetrank.analysis.stored.exclusions import exclusion_notes, not_excluded
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.load import newest_sweep
from fleetrank.analysis.stored.name_patterns import ANY_PRECISION, fits_model
from fleetrank.analysis.stored.selection import Selection
from fleetrank.foundation.units import BYTES_PER_MIB
from fleetrank.foundation.wording import count_of, few_of

Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)
EQUAL_INSIDE_PLATFORM = (
    "memory_metric", "sample_kind", STATISTIC, "runtime_version", "options", "origin",
)  # fmt: skip
"""These must be equal inside a platform: otherwise a ranking would compare tools, not models."""
IDENTITY = ("card_sha256", "weights_id", "input_size", "axes", WORKLOAD)
"""A model is the same on two platforms if these are equal; an equal name is not enough."""
_VERSION, _PATCH = "runtime_version", r"^(v?\d+\.\d+)[.\d_]*"
"""Versions are compared up to their second number; `2.13.0+cpu` is 2.13+cpu."""
_AXES = pl.format(" ({})", "axes").fill_null("")


def _without_patch(cells: pl.DataFrame) -> pl.DataFrame:
    """The cells with versions as they are compared; a cell of several patches has one version."""
    parts = pl.col(_VERSION).str.split(" | ")
    release = parts.list.eval(pl.element().str.replace(_PATCH, "$1")).list.unique().list.sort()
    return cells.with_columns(release.list.join(" | ").alias(_VERSION))


def differences(cells: pl.DataFrame) -> dict[str, str]:
    """Facts that must be equal but differ inside a platform: platform to text, sorted.

    Patches of one version of a runtime are equal: a release may hold several of them, since its
    devices were updated while it was made.
    """
    mixed = (
        _without_patch(cells)
        .unpivot(EQUAL_INSIDE_PLATFORM, index="platform_key", variable_name="fact")
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

    First without cells whose border is not that of most cells of their platform. A platform whose
    sweeps differ in a fact of `EQUAL_INSIDE_PLATFORM` keeps the cells that have
    the facts of its newest sweep. One that mixes them inside a sweep is left out.

    Adds `identity`, the name that identifies a model on other platforms: it is equal only if card,
        weights and input size are. A model measured twice on one platform (for example with other
        exporter options) is left out there: it is not known which figure is the model's.

    Raises:
        NotComparableError: no platform remains; the message lists the differences.
    """
    cells, apart = _of_one_border(cells)
    texts = differences(cells)
    stale = cells.filter(_is_stale(cells, texts))
    current = cells.join(stale, on=("model", "platform_key", "cell_key"), how="anti")
    mixed = differences(current)
    kept = _with_identity(current.filter(~pl.col("platform_key").is_in(list(mixed))))
    if kept.is_empty():
        listed = "; ".join(f"{platform} has {text}" for platform, text in mixed.items())
        raise NotComparableError(
            f"every platform mixes facts that must be equal inside it: {listed}",
            "choose one sweep with `sweep=`, or measure the platform again",
        )
    twice = pl.len().over("platform_key", "identity") > 1
    notes = [f"Dropped: {platform}, which mixes {text}." for platform, text in mixed.items()]
    notes += _stale_note(stale, texts)
    notes += _patch_note(kept)
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
    return kept.filter(~twice), (*apart, *notes)


def _of_one_border(cells: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The cells with the border of most of their platform or without any, and notes on the others.

    The time of a file that takes floats contains conversions that are outside of the other's.
    """
    border = pl.col("border")
    usual = border.drop_nulls().sort().mode(maintain_order=True).first().over("platform_key")
    is_apart = (border != usual).fill_null(value=False)
    apart = cells.with_columns(usual.alias("usual")).filter(is_apart)
    notes = [
        f"Left out: {model} on {few_of(platforms, 2)}: its inputs and outputs are {own}, those of "
        f"most models there {other}, so that the time of only one contains quantising "
        "(`allow_unlike_border=true` compares both)."
        for model, own, other, platforms in apart.group_by("model", "border", "usual")
        .agg(pl.col("platform_key").sort()).sort("model", "border", "usual").iter_rows()
    ]  # fmt: skip
    return cells.filter(~is_apart), notes


def _with_one_accuracy(cells: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The lowest accuracy that any row states for a model, on all its platforms, and a note.

    Sources publish different accuracies for one network, because their weights differ. A frontier
    must not use one of them on one device and another one on the next.
    """
    accuracy, known = pl.col("accuracy_top1"), _with_identity(cells)
    stated = known.group_by("identity").agg(accuracy.drop_nulls().n_unique())
    n_several = stated.filter(accuracy > 1).height
    if not n_several:
        return cells, ()
    models = count_of(n_several, "model")
    note = f"Sources state different accuracies of {models}; the lowest counts on every platform."
    return known.with_columns(accuracy.min().over("identity")).drop("identity"), (note,)


def _is_stale(cells: pl.DataFrame, platforms: Iterable[str]) -> pl.Series:
    """Whether a cell of these platforms has a fact that its platform's newest sweep has not.

    A fact that one side does not state, or that the newest sweep mixes, makes no cell stale.
    """
    cells = _without_patch(cells)
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


def _patch_note(cells: pl.DataFrame) -> list[str]:
    """A note on platforms whose cells have several patches of one version."""
    version = pl.col(_VERSION)
    several = (
        cells.drop_nulls(_VERSION)
        .group_by("platform_key")
        .agg(version.str.split(" | ").explode().unique().sort())
        .filter(version.list.len() > 1)
        .sort("platform_key")
    )
    if several.is_empty():
        return []
    platform, versions = several.row(0)
    more = f" and {several.height - 1} more" if several.height > 1 else ""
    return [
        f"Compared as one version: {', '.join(versions)} on {platform}{more}, which differ in the "
        "patch only."
    ]


def _only_value(fact: str) -> pl.Expr:
    values = pl.col(fact).drop_nulls()
    return pl.when(values.n_unique() == 1).then(values.first()).alias(fact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Selected cells, rows of `cell_values.cell_values`, with their notes.

    A model has one accuracy on all its platforms.
    """

    cells: pl.DataFrame
    notes: tuple[str, ...]


def select_attempts(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """All selected attempts that are not excluded, including failures."""
    return not_excluded(select_stored(frame, selection))


def select_stored(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """All selected attempts of one workload, including those excluded by hand.

    Source, target and tiers choose what is compared; they do not filter rows here.

    Raises:
        AnalysisError: the selection names no workload, and the rows have several.
    """
    chosen = of_every_workload(frame, selection)
    workload = selection.workload or usual_workload(workloads_of(chosen))
    return chosen.filter(known_workload() == workload)


def of_every_workload(frame: pl.LazyFrame, selection: Selection) -> pl.LazyFrame:
    """All selected attempts, whatever workload they are of."""
    chosen = frame.filter(pl.col("origin").is_in(list(selection.origins)))
    for name, wanted in (
        ("runtime", selection.runtime),
        ("precision", selection.precision),
        ("family", selection.family),
        *selection.where,
    ):
        if wanted is not None:
            chosen = chosen.filter(pl.col(name) == wanted)
    if selection.sweeps:
        chosen = chosen.filter(pl.col("sweep_id").is_in(selection.sweeps))
    if selection.models:
        chosen = chosen.filter(fits_model(*selection.models))
    return chosen


_OF_ANY = (
    "Each precision of a model is a separate model, with the accuracy that was measured with its "
    "file; without evaluations, floats have the published one and integers none.",
)


def select_cells(frame: pl.LazyFrame, selection: Selection, known: Sequence[str] = ()) -> Scope:
    """Values of the selected cells, and the notes of every table; see `session.Session.cells`.

    Args:
        frame: every stored attempt.
        selection: the cells to use.
        known: the workloads of the selected rows, if the caller has read them.

    Raises:
        NoDataError: the selection has no measurements, or every attempt failed.
        AnalysisError: the selection names no workload, and its rows have several.
    """
    others: tuple[str, ...] = ()
    if selection.workload is None:
        known = known or workloads_of(of_every_workload(frame, selection))
        selection = replace(selection, workload=usual_workload(known))
        others = other_workloads_note(known, str(selection.workload))
    attempts = select_attempts(frame, selection)
    cells = cell_values(attempts)
    excluded = exclusion_notes(select_stored(frame, selection))
    if cells.is_empty():
        raise NoDataError(
            " ".join(("no successful measurement matches the selection.", *excluded)).rstrip("."),
            "widen the selection (`include_simulated=true` adds virtual and simulated devices), or "
            "see the table `trust` with `part=dropped`"
            + (" and `fleetrank results exclude`" if excluded else ""),
        )
    failed = notes_on_failures(attempts, cells)
    limited: tuple[str, ...] = ()
    if selection.allow_unlike_border:
        others += border_note(cells)
        cells = cells.with_columns(border=pl.lit(None, pl.String))
    if selection.max_memory_mib is not None:
        cells, limited = within_memory(cells, selection.max_memory_mib)
    cells, of_accuracy = _with_one_accuracy(cells)
    notes = (
        *selection.notes, *notes_on_cells(cells), *limited, *excluded, *failed,
        *notes_on_noise(cells), *others, *of_accuracy,
        *(_OF_ANY if selection.precision == ANY_PRECISION else ()),
    )  # fmt: skip
    return Scope(cells=cells, notes=notes)


def border_note(cells: pl.DataFrame) -> tuple[str, ...]:
    """A warning, if cells of unlike borders are compared."""
    borders = cells["border"].drop_nulls().unique().sort()
    if len(borders) < 2:
        return ()
    return (
        f"UNLIKE BORDERS are compared ({'; '.join(borders)}): some times contain "
        "quantising of inputs and outputs, and some do not.",
    )


def within_memory(cells: pl.DataFrame, limit_mib: float) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The cells whose peak memory is known and within a limit, and a note on the others.

    Devices count memory in different ways; each figure is compared with the limit as it is.

    Raises:
        NoDataError: no cell remains.
    """
    memory = pl.col("peak_memory_bytes")
    known = cells.filter(memory > 0)
    kept = known.filter(memory <= limit_mib * BYTES_PER_MIB)
    text = (
        f"dropped by the limit of {limit_mib:g} MiB: {count_of(known.height - kept.height, 'row')} "
        f"above it, {count_of(cells.height - known.height, 'row')} without a peak memory"
    )
    if kept.is_empty():
        raise NoDataError(
            f"no model fits into {limit_mib:g} MiB; {text}",
            "raise the limit or leave it out; the table `latency` with `part=memory` "
            "lists what models need",
        )
    return kept, (f"{text[0].upper()}{text[1:]}.",)


def _with_identity(cells: pl.DataFrame) -> pl.DataFrame:
    """The model's name, followed by weights, card and size if one name means several models.

    Sizes of named axes always follow, so that unlike sizes are never compared.

    An imported row may lack these facts: it has our card's name only if the two were declared
        equal.
    """
    # A size that the sweep gave as an axis is in the name already.
    own_size = pl.when(~pl.col("axes").str.contains("input_size=").fill_null(value=False))
    facts = (pl.col("card_sha256"), pl.col("weights_id"), own_size.then("input_size"))
    several = pl.any_horizontal(fact.drop_nulls().n_unique().over("model") > 1 for fact in facts)
    parts = [
        pl.col("weights_id").fill_null("?"),
        pl.col("card_sha256").str.slice(0, 8).fill_null("?"),
        pl.col("input_size").cast(pl.String).fill_null("?"),
    ]
    long = pl.format("{} ({}, card {}, {} px)", "model", *parts)
    name = pl.when(several).then(long).otherwise("model")
    return cells.with_columns(pl.concat_str(name, _AXES).alias("identity"))


def _names_of_several(cells: pl.DataFrame) -> list[str]:
    usual = pl.concat_str("model", _AXES)
    return cells.filter(pl.col("identity") != usual)["model"].unique().sort().to_list()
