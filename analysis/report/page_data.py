"""The values of the page's charts as one JSON object; it has columns to stay small."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

import numpy as np
import polars as pl

from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.figures import FAMILY_MARKS, QUANTILES, frontier_pairs
from fleetrank.analysis.labels import labels_of
from fleetrank.analysis.panel.agreement import Agreement
from fleetrank.analysis.panel.panel import FRM, LATENCY
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.page_tables import Evidence, Json, PageTables, Shown, titled
from fleetrank.analysis.rounds import MeasuredRound
from fleetrank.analysis.statistics.model_ranks import ranks_on_platforms
from fleetrank.analysis.statistics.predictions import PredictionsResult
from fleetrank.analysis.statistics.scaling import windows
from fleetrank.analysis.stored.columns import NO_FAMILY
from fleetrank.analysis.stored.selection import STATISTIC
from fleetrank.analysis.tables.formats import MISSING
from fleetrank.analysis.tables.table import frame_of
from fleetrank.analysis.weather import weather_of
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.inputs import Workload
from fleetrank.foundation.vocabulary import NS_PER_MS, NS_PER_S

# The points of the page's charts about other workloads, profiles, rounds and long runs.

_BYTES_PER_MB = 1e6
_PLACE = ["model", "platform_key"]
_BAR_TABLES = {"components": "components", "operators": "components split=operator"}
"""A choice of the chart of components to the table that has its bars."""
_CROSSOVERS = "tokens/crossover"
_MOST_BARS = 12
"""Components of one model on one platform; the others are summed, or the chart gets too high."""
_REST = "(all smaller ones)"
_SHARES = ("share", "share_low", "share_high", "about_ms")
_MANY = 4
"""More models than that are counted: a caption has about three lines."""
_AXIS_TITLES = {
    "batch": "samples in one inference", "length": "tokens", "input_size": "pixels, height = width",
    "threads": "threads",
}  # fmt: skip
_MOST_POINTS = 2000
"""Of one chart; a longer sweep has one point for each round."""
_FEW_DIGITS = 2
_OF_REAL_DEVICES = pl.DataFrame(schema={"device": pl.String, "origin": pl.String})
_MOST_MODELS = 60
"""Of one chart of ranks; more do not fit on a screen."""


def token_points(evidence: Evidence) -> Json | None:
    """The cells of every workload with tokens, as columns; `w`, `p` and `m` are numbers.

    `slots` is null for an encoder, which has no cache. `None` on a page about images.
    """
    cells = shown_token_cells(evidence)
    if cells is None:
        return None
    shown, workloads = evidence.shown, list(evidence.token_workloads)
    per_s = pl.col("tokens_per_inference") / (pl.col("latency_ns") / NS_PER_S)
    figures = cells.select(
        (pl.col("latency_ns") / NS_PER_MS).round_sig_figs(_DIGITS).alias("ms"),
        pl.when(pl.col("latency_ns") > 0).then(per_s).round_sig_figs(_DIGITS).alias("per_s"),
        (pl.col("peak_memory_bytes") / _BYTES_PER_MB).round_sig_figs(_DIGITS).alias("mb"),
    )
    return {
        "workloads": workloads,
        "first": workloads.index(evidence.workload) if evidence.workload in workloads else 0,
        "slots": [Workload.parse(one).context_tokens for one in workloads],
        "w": [workloads.index(one) for one in cells["workload"]],
        "p": [shown.platform_at[one] for one in cells["platform_key"]],
        "m": [shown.model_at[one] for one in cells["model"]],
        **figures.to_dict(as_series=False),
    }


def shown_token_cells(evidence: Evidence) -> pl.DataFrame | None:
    """The cells of workloads with tokens that the charts show, by model and platform."""
    if evidence.token_cells is None:
        return None
    shown = evidence.shown
    return evidence.token_cells.filter(
        pl.col("model").is_in(list(shown.models))
        & pl.col("platform_key").is_in(list(shown.platforms))
    ).unique([*_PLACE, "workload"], keep="first", maintain_order=True)


def reading_times(evidence: Evidence, tables: PageTables) -> pl.DataFrame:
    """The times of reading that the page shows; empty without segments."""
    if not evidence.has_segments or len(tables.answered("tokens/reading", "tokens/crossover")) < 2:
        return pl.DataFrame()
    return evidence.shown.on_page(tables["tokens/reading"].frame)


def reading_groups(evidence: Evidence, tables: PageTables) -> list[Json]:
    """For each model and platform: title, number of the model, rows and crossovers.

    The number is null for a model that was not measured in the workload of the page.
    A row is [way, tokens, ms]; a crossover [way, tokens, low, high], an end that is not known null.
    """
    times = reading_times(evidence, tables)
    if times.is_empty():
        return []
    way = pl.coalesce("sizes", "strategy").alias("way")
    ms = pl.col("time_ms").round_sig_figs(_DIGITS)
    found = tables[_CROSSOVERS].frame.filter(pl.col("crossover_tokens").is_not_null())
    ends = (pl.col(name).round(1) for name in ("crossover_tokens", "low_tokens", "high_tokens"))
    crossings = found.select(*_PLACE, way, *ends)
    titles = _platform_titles(evidence, times)
    return [
        {
            "title": f"{model}, {titles[str(platform)]}",
            "model": evidence.shown.model_at.get(str(model)),
            "rows": _chart_lists(group.select(way, "tokens", ms).drop_nulls()),
            "crossings": _chart_lists(
                crossings.filter(model=model, platform_key=platform).drop(_PLACE)
            ),
        }
        for (model, platform), group in times.group_by(_PLACE, maintain_order=True)
    ]


def _platform_titles(evidence: Evidence, rows: pl.DataFrame) -> dict[str, str]:
    short = labels_of(rows["platform_key"].unique(maintain_order=True)).names
    return {
        key: titled(name, evidence.origins.filter(platform_key=key)["origin"])
        for key, name in short.items()
    }


def _chart_lists(frame: pl.DataFrame) -> list[list[object]]:
    return [list(row) for row in frame.iter_rows()]


def component_points(evidence: Evidence, tables: PageTables) -> Json | None:
    """By kind of component, the largest of each model and platform as columns.

    `m` and `p` are the numbers of model and platform. `None` on a page without profiles.
    """
    shown = evidence.shown
    found: Json = {}
    for choice, name in _BAR_TABLES.items():
        if not tables.answered(name):
            continue
        largest = _largest(tables[name].frame).filter(
            pl.col("model").is_in(list(shown.models))
            & pl.col("platform_key").is_in(list(shown.platforms))
        )
        figures = largest.select(pl.col(_SHARES).round_sig_figs(_DIGITS))
        found[choice] = {
            "m": [shown.model_at[one] for one in largest["model"]],
            "p": [shown.platform_at[one] for one in largest["platform_key"]],
            "name": largest["component"].to_list(),
            **figures.to_dict(as_series=False),
        }
    return found or None


def _largest(shares: pl.DataFrame) -> pl.DataFrame:
    """The components that are among the largest on some platform; the rest is one component."""
    rank = pl.col("share").rank("ordinal", descending=True).over(_PLACE)
    kept = shares.filter(rank <= _MOST_BARS).select("model", "component").unique()
    has_bar = shares.join(kept, on=["model", "component"], how="semi")
    rest = shares.join(kept, on=["model", "component"], how="anti")
    summed = rest.group_by(_PLACE, maintain_order=True).agg(
        pl.lit(_REST).alias("component"),
        pl.col("share", "about_ms").sum(),
    )
    columns = [*_PLACE, "component", *_SHARES]
    return pl.concat([has_bar.select(columns), summed], how="diagonal").select(columns)


def drawn_curves(evidence: Evidence, tables: PageTables) -> pl.DataFrame | None:
    """The points that the charts show: the curves of the table, which names no device."""
    if tables.curves is None:
        return None
    names = evidence.shown.on_page(tables.curves.select("model").unique())["model"]
    rows = tables.curves.filter(pl.col("model").is_in(names.implode()))
    return None if rows.is_empty() else rows


def drawn_runs(evidence: Evidence) -> pl.DataFrame | None:
    """The sustained runs that chart and table show."""
    if evidence.sustained is None:
        return None
    rows = evidence.shown.on_page(evidence.sustained)
    return None if rows.is_empty() else rows


def curve_groups(evidence: Evidence, tables: PageTables) -> list[Json]:
    """For each axis, platform and workload: titles, rows and the values that failed.

    A row is [model, value, ms, items per second, peak MB]; a figure that is not known is null. A
    model is its number on the page, or its name if it was not measured in the page's workload.
    """
    points = drawn_curves(evidence, tables)
    if points is None:
        return []
    shown = points.with_columns(
        (pl.col("latency_ns") / NS_PER_MS).round_sig_figs(_DIGITS).alias("ms"),
        pl.col("items_per_s").round_sig_figs(_DIGITS),
        (pl.col("peak_memory_bytes") / _BYTES_PER_MB).round_sig_figs(_DIGITS).alias("mb"),
    )
    place = ("over", "platform", "workload")
    short = labels_of(points["platform"].unique(maintain_order=True)).names
    groups: list[Json] = []
    for (over, platform, workload), group in shown.group_by(place, maintain_order=True):
        timed = group.filter(pl.col("end").is_null()).sort("value")
        ends = group.filter(pl.col("end").is_not_null())
        groups.append(
            {
                "title": f"{titled(short[str(platform)], group['origin'])}, {workload}",
                "over": over,
                "axis": _AXIS_TITLES[str(over)],
                "item": group["item"][0],
                "rows": [[_at(evidence, model), *figures] for model, *figures in timed.select(
                    "model", "value", "ms", "items_per_s", "mb").iter_rows()],
                "ends": _ends_text(ends),
            }
        )  # fmt: skip
    return groups


def _at(evidence: Evidence, model: str) -> int | str:
    return evidence.shown.model_at.get(model, model)


def _ends_text(ends: pl.DataFrame) -> str:
    """The smallest value of each model and error: larger ones failed too, or were not needed."""
    first = ends.group_by("model", "end", maintain_order=True).agg(pl.col("value").min())
    alike = first.group_by("end", "value", maintain_order=True).agg("model")
    names = (
        (end, value, ", ".join(models) if len(models) <= _MANY else count_of(len(models), "model"))
        for end, value, models in alike.iter_rows()
    )
    return "; ".join(f"{end.replace('_', ' ')} at {value}: {some}" for end, value, some in names)


def sustained_series(evidence: Evidence) -> list[Json]:
    """For each platform and workload: title, item and points.

    A point is [model, repeat, second, rate], the model as in `curve_groups`; a line ends with its
    last window.
    """
    rows = drawn_runs(evidence)
    if rows is None:
        return []
    short = labels_of(rows["platform_key"].unique(maintain_order=True)).names
    points: dict[tuple[str, str], list[list[object]]] = {}
    facts: dict[tuple[str, str], tuple[str, str]] = {}
    for row in rows.iter_rows(named=True):
        samples = np.asarray(row["samples_ns"] or [], dtype=float)
        samples = samples[samples > 0]
        if samples.size == 0 or row["items"] is None:
            continue
        ends_s = np.cumsum(samples) / NS_PER_S
        starts, rates = windows(ends_s)
        steps = [*zip(starts, rates, strict=True), (ends_s[-1], rates[-1])]
        key = row["platform_key"], row["workload"]
        facts[key] = row["item"], titled(short[row["platform_key"]], [row["origin"]])
        run = _at(evidence, row["model"]), row["repeat"] + 1
        points.setdefault(key, []).extend(
            [*run, round(float(at), 3), float(f"{rate * row['items']:.{_DIGITS}g}")]
            for at, rate in steps
        )
    return [
        {"title": f"{title}, {workload}", "item": item, "points": points[platform, workload]}
        for (platform, workload), (item, title) in facts.items()
    ]


def host_series(
    rounds: Sequence[MeasuredRound], origins: pl.DataFrame = _OF_REAL_DEVICES
) -> list[dict[str, object]]:
    """For each sweep on a device its `title` and `points`: moment, effect in per cent, verdict.

    `origins` has `device` and `origin`; the title says so if a device is not a real one.
    """
    origin_of = dict(origins.select("device", "origin").iter_rows())
    found: list[dict[str, object]] = []
    for (sweep, device), group in itertools.groupby(sorted(rounds, key=_place), key=_place):
        mine = [one for one in group if one.above is not None and one.began_utc is not None]
        is_long = sum(one.blocks.size for one in mine) > _MOST_POINTS
        points = [point for one in mine for point in _round_points(one, is_whole=is_long)]
        if points:
            title = f"{titled(device, [origin_of.get(device)])}, {sweep}"
            found.append({"title": title, "points": points})
    return found


def _place(one: MeasuredRound) -> tuple[str, str]:
    return one.sweep_id, one.device


def _round_points(one: MeasuredRound, *, is_whole: bool) -> Iterator[list[object]]:
    """A point for each block, or for the whole round; a round without blocks is one point."""
    if one.above is None or one.began_utc is None:
        return
    verdict = weather_of(one).verdict.value
    effects = zip(one.starts_ns.tolist(), one.blocks.tolist(), strict=True)
    for start_ns, block in [(0.0, 0.0)] if is_whole or one.blocks.size == 0 else effects:
        later = timedelta(microseconds=start_ns / 1e3) if math.isfinite(start_ns) else timedelta()
        percent = 100 * math.expm1(one.above + block)
        yield [
            f"{one.began_utc + later:%Y-%m-%dT%H:%M:%SZ}",
            round(percent, _FEW_DIGITS),
            verdict,
        ]


def rank_series(evidence: Evidence) -> list[dict[str, object]]:
    """For each platform with rounds its number, and for each model two sets of ranks.

    `rows` are [number of the model, [rank, low, high] of medians, the same without the host],
    fastest first. A platform without sets is left out.
    """
    if not evidence.rounds:
        return []
    shown = evidence.shown
    took_turns = pl.col("round_id").is_not_null() & pl.col("platform_key").is_in(shown.platforms)
    chosen = evidence.selected.filter(took_turns).select("platform_key").unique().collect()
    mine = evidence.attempts.filter(pl.col("platform_key").is_in(chosen["platform_key"].implode()))
    alone = mine.with_columns(pl.lit(None, dtype=pl.String).alias("round_id"))
    without, medians = _sets(mine, evidence), _sets(alone, evidence)
    found: dict[str, list[object]] = {}
    for (platform, model), one in without.items():
        if model in shown.model_at and (platform, model) in medians:
            row = [shown.model_at[model], medians[platform, model], one]
            found.setdefault(platform, []).append(row)
    return [
        {"platform": shown.platform_at[platform], "rows": rows}
        for platform, rows in found.items()
        if 1 < len(rows) <= _MOST_MODELS
    ]


def _sets(attempts: pl.LazyFrame, evidence: Evidence) -> dict[tuple[str, str], list[int]]:
    """Rank and its set by platform and model, the fastest first."""
    try:
        found = ranks_on_platforms(Session(attempts, evidence.selection))
    except NotComparableError:
        return {}
    return {
        (str(one.platform_key), one.model): [one.rank, one.rank_low, one.rank_high]
        for one in found
        if one.rank_low is not None and one.rank_high is not None
    }


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
        measure: latency or FRM.
        positions: number of each platform on the page; pairs with another one are left out.

    Returns:
        `source`, `target` (numbers), `n_models`, the figures to three digits, and `reason`.
    """
    known = [
        one
        for one in pairs
        if one.measure == measure and one.source in positions and one.target in positions
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
_DIGITS = 4
"""No process median is precise to more digits."""
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
        "host": host_series(evidence.rounds, evidence.origins),
        "tokens": token_points(evidence),
        "components": component_points(evidence, tables),
        "scaling": curve_groups(evidence, tables),
        "reading": reading_groups(evidence, tables),
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
    return None if value_ns is None else float(f"{value_ns / _PER_MS:.{_DIGITS}g}")
