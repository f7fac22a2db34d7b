"""Part `ratios`: which component is slow on another device."""

import itertools
from collections.abc import Sequence

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.components.components import selected_kernels, shares_of
from fleetrank.analysis.stored.name_patterns import fits_platform
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import few_of

_PAIR = ("model", "component")
_RATIO_FIGURES = ("share", "share_low", "share_high", "latency_ns")
_NAMED = 4
"""Components of a model that the note names, and models on a platform."""


def component_ratios_table(session: Session) -> Table:
    """One row for each model, pair of platforms and component, the largest `relative` first.

    Raises:
        NoDataError: no model was profiled on two of the selected platforms.
        AnalysisError: the depth is not a whole number from 1.
    """
    kernels, left_out = selected_kernels(session)
    shares = shares_of(session, kernels)
    facts = session.cells.cells.select("platform_key", "device", "device_model", "tier")
    facts = facts.unique("platform_key")
    shares = shares.join(facts, on="platform_key", how="left", maintain_order="left")
    chosen = session.selection
    sources = _platforms(shares, fits_platform(chosen.source, chosen.source_tier))
    targets = _platforms(shares, fits_platform(chosen.target, chosen.target_tier))
    is_directed = (chosen.source, chosen.source_tier, chosen.target, chosen.target_tier) != (
        None, None, None, None,
    )  # fmt: skip
    pairs = [
        (source, target)
        for source, target in itertools.product(sources, targets)
        if source != target and (is_directed or source < target)
    ]
    frames = [_of_pair(shares, source, target) for source, target in pairs]
    found = [frame for frame in frames if not frame.is_empty()]
    if not found:
        raise _nothing_shared(shares, pairs)
    return Table(
        title=f"Components on two platforms, {session.workload}",
        frame=pl.concat(found).sort(
            "source", "target", "model", "relative",
            descending=[False, False, False, True], nulls_last=True,
        ),
        notes=(*session.cells.notes, *left_out, *_left_out_note(shares, pairs)),
        explanation=explained("components/ratios"),
    )  # fmt: skip


def _nothing_shared(shares: pl.DataFrame, pairs: Sequence[tuple[str, str]]) -> NoDataError:
    models = {
        platform: set(part["model"])
        for (platform,), part in shares.group_by("platform_key", maintain_order=True)
    }
    both = sorted({name for source, target in pairs for name in models[source] & models[target]})
    if not both:
        return NoDataError(
            "no model was profiled on two of the selected platforms",
            "profile it on a second device: `fleetrank run MODEL` with `profile=true` and another "
            "`device`",
        )
    return NoDataError(
        f"two platforms profiled {few_of(both, _NAMED)}, and no component of theirs has the same "
        "name",
        "compare `split=module` across runtimes, with a smaller `depth`; a runtime that gives "
        "operators alone has no modules",
    )


def _platforms(shares: pl.DataFrame, fits: pl.Expr) -> list[str]:
    return sorted(shares.filter(fits)["platform_key"].unique())


def _of_pair(shares: pl.DataFrame, source: str, target: str) -> pl.DataFrame:
    """The components that both platforms have; ratios of a share of 0 are null."""
    sides = [
        shares.filter(pl.col("platform_key") == platform).select(*_PAIR, *_RATIO_FIGURES)
        for platform in (source, target)
    ]
    both = sides[0].join(sides[1], on=_PAIR, how="inner", suffix="_target")
    model_ratio = _over("latency_ns_target", "latency_ns")
    return both.select(
        "model",
        pl.lit(source).alias("source"),
        pl.lit(target).alias("target"),
        "component",
        pl.col("share").alias("source_share"),
        pl.col("share_target").alias("target_share"),
        (_over("share_target", "share") * model_ratio).alias("ratio"),
        model_ratio.alias("model_ratio"),
        _over("share_target", "share").alias("relative"),
        _over("share_low_target", "share_high").alias("relative_low"),
        _over("share_high_target", "share_low").alias("relative_high"),
    )


def _over(above: str, below: str) -> pl.Expr:
    return pl.when(pl.col(below) > 0).then(pl.col(above) / pl.col(below))


def _left_out_note(shares: pl.DataFrame, pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Which components only one platform of a pair has, the largest first."""
    sides = [side for pair in pairs for side in (pair, pair[::-1])]
    lacked = [_lacked(shares, mine, other) for mine, other in sides]
    if not lacked or (rows := pl.concat(lacked).unique()).is_empty():
        return ()
    found = (
        rows.sort("share", "component", descending=[True, False])
        .group_by("model", "platform_key")
        .agg(pl.col("component"), pl.col("share").sum())
        .sort("share", "model", "platform_key", descending=[True, False, False])
    )
    texts = [
        f"{few_of(row['component'], _NAMED)} of {row['model']} on {row['platform_key']} "
        f"({100 * row['share']:.2f} % of its time)"
        for row in found.head(_NAMED).to_dicts()
    ]
    more = found.height - len(texts)
    end = f"; and those of {more} more" if more else ""
    return (f"Left out, because only one of two platforms has them: {'; '.join(texts)}{end}.",)


def _lacked(shares: pl.DataFrame, mine: str, other: str) -> pl.DataFrame:
    """The components on one platform that the other lacks, of models that both have."""
    ours, theirs = (shares.filter(pl.col("platform_key") == one) for one in (mine, other))
    return (
        ours.join(theirs, on="model", how="semi")
        .join(theirs, on=_PAIR, how="anti")
        .select(*_PAIR, "platform_key", "share")
    )
