"""The values of the page's charts as one JSON object; it has columns to stay small."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import polars as pl

from fleetrank.analysis.figures.labels import FAMILY_MARKS
from fleetrank.analysis.figures.points import QUANTILES, frontier_pairs
from fleetrank.analysis.panel.pair_groups import Level
from fleetrank.analysis.panel.panel import FRM, LATENCY
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.origin_words import titled
from fleetrank.analysis.report.page_predictions import predicted_points
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.sections.component_bars import component_points
from fleetrank.analysis.report.sections.growth import curve_groups, sustained_series
from fleetrank.analysis.report.sections.host_section import host_series
from fleetrank.analysis.report.sections.prompts_and_steps import reading_groups, token_points
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.statistics.frontiers.regret import Form, RegretResult
from fleetrank.analysis.statistics.transfer.transfer import TransferResult
from fleetrank.analysis.stored.columns import NO_FAMILY
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.tables.values import MISSING

_PAIR_FIGURES = (
    "rho", "low", "high", "null_mean", "null_p95", "residual_null_mean", "residual_p_adjusted",
    "ceiling",
)  # fmt: skip
_PAIR_DIGITS = 3


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
        **{name: known[name].round(_PAIR_DIGITS).to_list() for name in _PAIR_FIGURES},
        "reason": known["reason"].to_list(),
    }


def models_by_memory(cells: pl.DataFrame) -> list[str]:
    """Models from the smallest to the largest median peak over the platforms that report one."""
    ordered = (
        cells.filter(pl.col("peak_memory_bytes") > 0)
        .group_by("model")
        .agg(pl.col("peak_memory_bytes").median())
        .sort("peak_memory_bytes", "model")
    )
    return [str(name) for name in ordered["model"]]


def flops_ranks(cells: pl.DataFrame) -> pl.DataFrame:
    """Ranks from 1 (fewest FLOPs, fastest) among the platform's models that have both.

    Takes rows of `cells_table.cell_values`; gives `model`, `platform_key`, `flops_rank`,
    `latency_rank` and `n_ranked`, of platforms with at least two such models. Equal values share
    the mean of their ranks.
    """
    return (
        cells.filter((pl.col("flops") > 0) & (pl.col("latency_ns") > 0))
        .select(
            "model",
            "platform_key",
            pl.col("flops").rank().over("platform_key").alias("flops_rank"),
            pl.col("latency_ns").rank().over("platform_key").alias("latency_rank"),
            pl.len().over("platform_key").cast(pl.Int64).alias("n_ranked"),
        )
        .filter(pl.col("n_ranked") > 1)
        .unique(["model", "platform_key"], keep="first", maintain_order=True)
    )


Json = dict[str, object]
_PER_MS, _PER_MB = 1e6, 1e6
_DIGITS = 4
"""No process median is precise to more digits."""
_SCALED = {
    "ms": ("latency_ns", _PER_MS), "low_ms": ("latency_low_ns", _PER_MS),
    "high_ms": ("latency_high_ns", _PER_MS), "p95_ms": ("latency_p95_ns", _PER_MS),
    "p99_ms": ("latency_p99_ns", _PER_MS), "run_mb": ("peak_memory_bytes", _PER_MB),
    "load_mb": ("load_peak_memory_bytes", _PER_MB), "accuracy": ("accuracy_top1", 1.0),
}  # fmt: skip
_MEASURES = (LATENCY, FRM)
_FORMS = {Form.LOST: "lost", Form.EXTRA: "extra"}
_AGREEMENT = {
    "source": pl.String, "target": pl.String, "n_models": pl.Int64, "rho": pl.Float64,
    "low": pl.Float64, "high": pl.Float64, "null_mean": pl.Float64, "null_p95": pl.Float64,
    "residual_null_mean": pl.Float64, "residual_p_adjusted": pl.Float64, "ceiling": pl.Float64,
    "reason": pl.String,
}  # fmt: skip


def page_data(evidence: Evidence, tables: PageTables) -> Json:
    """The object that `templates/state.js` reads; a missing value is null."""
    shown = evidence.shown
    return {
        "missing": MISSING,
        "platforms": _platforms(shown),
        "models": _models(shown),
        "memory_order": [
            shown.model_at[name] for name in models_by_memory(shown.cells)
        ],
        "quantiles": list(QUANTILES),
        "cells": _cells(evidence),
        "predicted": predicted_points(tables.predictions, shown),
        "pairs": {
            name: heat_columns(_agreements(tables.transfer, name), shown.platform_at)
            for name in _MEASURES
        },
        "host": host_series(evidence.rounds, evidence.origins),
        "tokens": token_points(evidence),
        "components": component_points(evidence, tables),
        "scaling": curve_groups(evidence, tables),
        "reading": reading_groups(evidence, tables),
        "sustained": sustained_series(evidence),
        "frontiers": _frontiers(evidence, tables.regret),
        "families": {
            name: {"colour": mark.colour, "shape": mark.shape}
            for name, mark in FAMILY_MARKS.items()
        },
        "in_results": {
            "platforms": len(shown.names), "models": evidence.cells["model"].n_unique()
        },
    }  # fmt: skip


def _agreements(transfer: TransferResult | None, measure: str) -> pl.DataFrame:
    """The pairs of one measure: names of their platforms and their figures."""
    rows = [
        {
            "source": one.agreement.source,
            "target": one.agreement.target,
            "residual_p_adjusted": one.agreement.residual_p_adjusted,
            "ceiling": one.ceiling.value,
        }
        | asdict(one.agreement.figures)
        for one in (transfer.pairs if transfer is not None else ())
        if one.agreement.measure == measure
    ]
    return pl.DataFrame(rows, schema=_AGREEMENT)


def _platforms(shown: Shown) -> list[Json]:
    names = ("tier", "device", "runtime", "precision", "memory_metric", STATISTIC)
    several = (
        pl.col(name).drop_nulls().unique().sort().cast(pl.String).str.join(" | ")
        for name in (*names, "origin")
    )
    facts = {
        str(row["platform_key"]): row
        for row in shown.cells.group_by("platform_key").agg(several).iter_rows(named=True)
    }
    return [
        {"key": key, "label": label, "title": titled(label, [facts[key]["origin"]])}
        | {name: facts[key][name] or None for name in names}
        for key, label in shown.platforms.items()
    ]


def _models(shown: Shown) -> list[Json]:
    families = dict(shown.cells.select("model", "family").iter_rows())
    return [{"name": name, "family": families[name] or NO_FAMILY} for name in shown.models]


def _cells(evidence: Evidence) -> Json:
    """One entry per model and platform in every column; `p` and `m` are their numbers."""
    shown = evidence.shown
    key = ["model", "platform_key"]
    frame = (
        shown.cells.unique(key, keep="first", maintain_order=True)
        .join(flops_ranks(evidence.ranked), on=key, how="left", maintain_order="left")
        .join(evidence.processes, on=key, how="left", maintain_order="left")
        .join(evidence.quantiles, on=key, how="left", maintain_order="left")
    )
    return {
        "p": [shown.platform_at[name] for name in frame["platform_key"]],
        "m": [shown.model_at[name] for name in frame["model"]],
        "n": frame["n_repeats"].to_list(),
        **{
            name: (frame[column].cast(pl.Float64) / unit).round_sig_figs(_DIGITS).to_list()
            for name, (column, unit) in _SCALED.items()
        },
        **{name: frame[name].to_list() for name in ("flops_rank", "latency_rank", "n_ranked")},
        "processes_ms": _lists(frame["medians_ns"]),
        "quantiles_ms": _lists(frame["quantiles_ns"]),
    }


def _lists(column: pl.Series) -> list[object]:
    scaled = column.list.eval((pl.element().cast(pl.Float64) / _PER_MS).round_sig_figs(_DIGITS))
    return scaled.to_list()


def _frontiers(evidence: Evidence, regret: RegretResult | None) -> list[Json]:
    """Directed pairs; `fates` has a letter for each of `models`, as `figures.points.Fate`."""
    shown = evidence.shown
    keys = [key for key in evidence.paired_keys if key in shown.platform_at]
    costs = _regrets(regret)
    return [
        {
            "s": shown.platform_at[pair.source],
            "t": shown.platform_at[pair.target],
            "n": len(pair.models),
            "precision": round(pair.overlap.precision, 3),
            "recall": round(pair.overlap.recall, 3),
            "chance": round(pair.overlap.chance_precision, 3),
            **costs.get((pair.source, pair.target), {}),
            **_fates(shown, pair.models, [fate.value for fate in pair.fates]),
        }
        for pair in frontier_pairs(evidence.ranked, keys)
    ]


def _fates(shown: Shown, models: Sequence[str], fates: Sequence[str]) -> Json:
    known = [
        (shown.model_at[model], fate)
        for model, fate in zip(models, fates, strict=True)
        if model in shown.model_at
    ]
    return {"models": [number for number, _ in known], "fates": "".join(fate for _, fate in known)}


def _regrets(regret: RegretResult | None) -> Mapping[tuple[str, str], Json]:
    """Median and worst of both forms, by source and target."""
    found: dict[tuple[str, str], Json] = {}
    for one in regret.cases if regret is not None else ():
        if one.level is not Level.PAIR or one.target is None:
            continue
        values = (None, None) if one.regret is None else (one.regret.median, one.regret.worst)
        rounded = [None if value is None else round(value, 2) for value in values]
        found.setdefault((one.source, one.target), {})[_FORMS[one.form]] = rounded
    return found
