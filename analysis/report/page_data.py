"""The values of the page's charts as one JSON object; it has columns to stay small."""

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from fleetrank.analysis.chart_points import QUANTILES, frontier_pairs
from fleetrank.analysis.figures import FAMILY_MARKS
from fleetrank.analysis.panel.agreement import Agreement
from fleetrank.analysis.panel.panel import FRM, FRM_WITHOUT_MEMORY, LATENCY
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.growth_points import curve_groups, sustained_series
from fleetrank.analysis.report.history_points import history_series
from fleetrank.analysis.report.html_table import Json
from fleetrank.analysis.report.page_tables import PageTables, titled
from fleetrank.analysis.report.points import DIGITS
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.report.token_points import token_points
from fleetrank.analysis.statistics.prediction.predictions import PredictionsResult
from fleetrank.analysis.stored.columns import NO_FAMILY
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.tables.table import frame_of
from fleetrank.analysis.tables.values import MISSING

_PAIR_FIGURES = (
    "rho", "low", "high", "null_mean", "null_p95", "residual_null_mean", "residual_p_adjusted",
)  # fmt: skip
_PAIR_DIGITS = 3


def heat_columns(
    pairs: Iterable[Agreement], measure: str, positions: Mapping[str, int]
) -> dict[str, list[object]]:
    """The pairs of one measure of `transfer`, as columns.

    Args:
        pairs: each pair once; rho has no direction.
        measure: latency or FRM, also without memory.
        positions: number of each platform on the page; pairs with another one are left out.

    Returns:
        `source`, `target` (numbers), `n_models`, the figures to three digits, and `reason`.
    """
    names = {measure, FRM_WITHOUT_MEMORY} if measure == FRM else {measure}
    known = [
        one
        for one in pairs
        if one.measure in names and one.source in positions and one.target in positions
    ]
    figures = frame_of(Agreement, known)
    return {
        "source": [positions[name] for name in figures["source"]],
        "target": [positions[name] for name in figures["target"]],
        "n_models": figures["n_models"].to_list(),
        **{name: figures[name].round(_PAIR_DIGITS).to_list() for name in _PAIR_FIGURES},
        "reason": figures["reason"].to_list(),
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

    Takes rows of `cell_values.cell_values`; gives `model`, `platform_key`, `flops_rank`,
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


_PER_MS, _PER_MB = 1e6, 1e6
_SCALED = {
    "ms": ("latency_ns", _PER_MS), "low_ms": ("latency_low_ns", _PER_MS),
    "high_ms": ("latency_high_ns", _PER_MS), "p95_ms": ("latency_p95_ns", _PER_MS),
    "p99_ms": ("latency_p99_ns", _PER_MS), "run_mb": ("peak_memory_bytes", _PER_MB),
    "load_mb": ("load_peak_memory_bytes", _PER_MB), "accuracy": ("accuracy_top1", 1.0),
}  # fmt: skip
_MEASURES = (LATENCY, FRM)


def page_data(evidence: Evidence, tables: PageTables) -> Json:
    """The object that `templates/state.js` reads; a missing value is null."""
    shown = evidence.shown
    families = dict(shown.cells.select("model", "family").iter_rows())
    pairs = () if tables.transfer is None else tables.transfer.pairs
    return {
        "missing": MISSING,
        "fleet": tables.fleet,
        "platforms": _platforms(shown),
        "models": [
            {"name": name, "family": families[name] or NO_FAMILY} for name in shown.models
        ],
        "memory_order": [
            shown.model_at[name] for name in models_by_memory(shown.cells)
        ],
        "quantiles": list(QUANTILES),
        "cells": _cells(evidence),
        "predicted": _predicted(tables.predictions, shown),
        "pairs": {
            name: heat_columns(pairs, name, shown.platform_at)
            for name in _MEASURES
        },
        "history": history_series(tables.history, shown),
        "tokens": token_points(evidence),
        "scaling": curve_groups(evidence, tables),
        "sustained": sustained_series(evidence),
        "frontiers": _frontiers(evidence),
        "families": {
            name: {"colour": mark.colour, "shape": mark.shape}
            for name, mark in FAMILY_MARKS.items()
        },
        "in_results": {
            "platforms": len(shown.names), "models": evidence.cells["model"].n_unique()
        },
    }  # fmt: skip


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
            name: (frame[column].cast(pl.Float64) / unit).round_sig_figs(DIGITS).to_list()
            for name, (column, unit) in _SCALED.items()
        },
        **{name: frame[name].to_list() for name in ("flops_rank", "latency_rank", "n_ranked")},
        "processes_ms": _lists(frame["medians_ns"]),
        "quantiles_ms": _lists(frame["quantiles_ns"]),
    }


def _lists(column: pl.Series) -> list[object]:
    scaled = column.list.eval((pl.element().cast(pl.Float64) / _PER_MS).round_sig_figs(DIGITS))
    return scaled.to_list()


def _frontiers(evidence: Evidence) -> list[Json]:
    """Directed pairs; `fates` has a letter for each of `models`, as `analysis.figures.Fate`."""
    shown = evidence.shown
    keys = [key for key in evidence.paired_keys if key in shown.platform_at]
    return [
        {
            "s": shown.platform_at[pair.source],
            "t": shown.platform_at[pair.target],
            "n": len(pair.models),
            "precision": round(pair.overlap.precision, 3),
            "recall": round(pair.overlap.recall, 3),
            "chance": round(pair.overlap.chance_precision, 3),
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


def _predicted(found: PredictionsResult | None, shown: Shown) -> dict[str, object]:
    """The predictions in columns, in ms; `p` and `m` are numbers of platform and model."""
    rows = [one for one in found.rows if one.predicted] if found is not None else []
    return {
        "p": [shown.platform_at[one.platform_key] for one in rows],
        "m": [shown.model_at[one.model] for one in rows],
        "ms": [_milliseconds(one.predicted) for one in rows],
        "low_ms": [_milliseconds(one.low) for one in rows],
        "high_ms": [_milliseconds(one.high) for one in rows],
    }


def _milliseconds(value_ns: float | None) -> float | None:
    return None if value_ns is None else float(f"{value_ns / _PER_MS:.{DIGITS}g}")
