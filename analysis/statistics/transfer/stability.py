"""How steady are ranks and ratios over the platforms of one tier?"""

import zlib
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.frm import frm, ratios
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, average_ranks, require_finite
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.pair_groups import group_agreement, tier_groups
from fleetrank.analysis.panel.panel import Measure, Panel, incomplete_notes, measures
from fleetrank.analysis.panel.selected_pairs import chosen_platforms
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.components import component_measures
from fleetrank.analysis.stored.columns import TIERS
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

STATISTICS = ("rank_std", "rank_cv", "ratio_std", "ratio_cv")
RESAMPLES = 1000


def spreads(ratios: Floats) -> Floats:
    """Per model the spread over platforms of its rank and of its ratio.

    From (n_models, n_platforms), at least 2 platforms, to (n_models, 4): standard deviation
    (n - 1) and coefficient of variation (standard deviation over mean) of the rank, then of the
    ratio.

    Raises:
        ValueError: fewer than 2 platforms, NaN, or a ratio of 0 or less.
    """
    require_finite(ratios)
    if ratios.shape[1] < 2:
        raise ValueError("a spread needs 2 platforms")
    if (ratios <= 0).any():
        raise ValueError("a ratio must be above 0: remove models without one")
    columns = []
    for values in (average_ranks(ratios), ratios):
        deviation = values.std(axis=1, ddof=1)
        # Rounding gives equal values a small deviation from their mean.
        deviation[np.ptp(values, axis=1) == 0] = 0.0
        columns += [deviation, deviation / values.mean(axis=1)]
    return np.column_stack(columns)


def mean_interval(values: Floats, rng: np.random.Generator) -> tuple[Floats, Floats] | None:
    """95 % percentile bootstrap over models of column means of (n_models, n_columns).

    `None` below 9 models. Ranks are among all models; a resample does not rank again.
    """
    require_finite(values)
    n_models = values.shape[0]
    if n_models < MIN_MODELS_FOR_INTERVAL:
        return None
    counts = resample_counts(n_models, RESAMPLES, rng)
    return percentile_interval(counts @ values / n_models)


Ints = npt.NDArray[np.int64]

_SCHEMA = {
    "tier": pl.String,
    "batch": pl.Int64,
    "statistic": pl.String,
    "measure": pl.String,
    "n_models": pl.Int64,
    "n_platforms": pl.Int64,
    "n_device_models": pl.Int64,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "null_mean": pl.Float64,
    "null_p95": pl.Float64,
    "reason": pl.String,
}
_CUBE_ROOT = "latency_cube_root"
_ORDER = ("latency", _CUBE_ROOT, "frm")

_MEANING = (
    "rank_*, ratio_*: standard deviation (n - 1) and coefficient of variation over the platforms "
    "of a tier at one batch, mean over the models measured on all of them. A ratio is the value "
    "over the geometric mean over these models.",
    "latency_cube_root: ratio_latency^(1/3), over FRM's models. FRM is also a cube root, and a "
    "cube root alone divides a spread by about three: compare FRM's ratio_cv with this one, not "
    "with latency's. FLOPs multiply a model's FRM by the same number on every platform and "
    "cannot change its CV; a remaining difference comes from memory.",
    "rho: mean over pairs of different devices, equal to the tier's row of table `transfer`. "
    "Only the part of FRM's rho above its null is evidence.",
    "Each platform has the same weight: a device measured in three runtimes counts three times. "
    "A ratio removes the difference in speed between devices of one tier.",
    f"low to high: 95 % percentile bootstrap over models, {RESAMPLES} resamples, from 9 models "
    "on; for ranks and ratios the platforms are fixed.",
)


def stability_table(session: Session) -> Table:
    """Spread of rank and ratio, and rho, over the platforms of each tier and batch."""
    panel, selection = session.panel, session.selection
    chosen, _ = chosen_platforms(panel, selection)
    groups = _groups(panel, chosen)
    if not groups:
        raise NoDataError(
            "no tier has two platforms of equal batch to compare",
            "measure a second device or runtime of a tier; " + " ".join(panel.notes),
        )
    rows = [
        row
        for columns in groups
        for measure in _measures(panel)
        for row in _rows(panel, measure, columns, selection.seed)
    ]
    rows.sort(key=_place)
    notes = (
        *panel.notes,
        *incomplete_notes(panel),
        *_MEANING,
        f"Seed {selection.seed}.",
        *few_models_note(len(panel.models)),
    )
    return Table(title="Stability inside a tier", frame=pl.DataFrame(rows, _SCHEMA), notes=notes)


def _groups(panel: Panel, chosen: list[int]) -> list[list[int]]:
    """Columns by tier and batch, where there are at least two."""
    found: dict[tuple[object, object], list[int]] = defaultdict(list)
    facts = panel.platforms.to_dicts()
    for column in chosen:
        found[facts[column]["tier"], facts[column]["batch"]].append(column)
    return [columns for columns in found.values() if len(columns) > 1]


def _measures(panel: Panel) -> tuple[Measure, Measure, Measure]:
    """Latency over all its models; its cube root and FRM over those with every component."""
    latency, compound = measures(panel)
    alone = component_measures(panel)[0]
    root = Measure(name=_CUBE_ROOT, rest=alone.rest, latency=alone.latency)
    return latency, root, compound


def _rows(
    panel: Panel, measure: Measure, columns: list[int], seed: int
) -> Iterator[dict[str, object]]:
    facts = panel.platforms[columns]
    models = np.flatnonzero(np.isfinite(measure.values[:, columns]).all(axis=1))
    head: dict[str, object] = {
        "tier": facts["tier"][0],
        "batch": facts["batch"][0],
        "measure": measure.name,
        "n_models": models.size,
        "n_platforms": len(columns),
        "n_device_models": facts["device_model"].n_unique(),
    }
    for name, figures in _spread_figures(panel, measure, (models, columns), seed):
        yield head | {"statistic": name} | figures
    yield head | {"statistic": "rho"} | _rho(panel, measure, columns, seed)


def _spread_figures(
    panel: Panel, measure: Measure, grid: tuple[Ints, list[int]], seed: int
) -> Iterator[tuple[str, dict[str, object]]]:
    models, columns = grid
    if models.size < MIN_MODELS:
        there = count_of(models.size, "model")
        few = f"{there} on all of these platforms, at least {MIN_MODELS} needed"
        for name in STATISTICS:
            yield name, {"reason": few}
        return
    values = spreads(_ratios(panel, measure.name, np.ix_(models, np.array(columns))))
    # The same resamples for every measure, so that their intervals can be compared.
    key = zlib.crc32(" ".join(panel.keys[column] for column in columns).encode())
    interval = mean_interval(values, np.random.default_rng([seed, key]))
    for number, name in enumerate(STATISTICS):
        figures: dict[str, object] = {"value": float(values[:, number].mean())}
        if interval is None:
            figures["reason"] = f"no interval: {count_of(models.size, 'model')}, at least 9 needed"
        else:
            figures |= {"low": float(interval[0][number]), "high": float(interval[1][number])}
        yield name, figures


def _ratios(panel: Panel, name: str, grid: tuple[Ints, ...]) -> Floats:
    latency = panel.latency[grid]
    if name == "frm":
        return frm(panel.flops[grid[0][:, 0]], latency, panel.memory[grid])
    return np.cbrt(ratios(latency)) if name == _CUBE_ROOT else ratios(latency)


def _rho(panel: Panel, measure: Measure, columns: list[int], seed: int) -> dict[str, object]:
    pairs = [(i, j) for at, i in enumerate(columns) for j in columns[at + 1 :]]
    groups = tier_groups(panel, pairs)
    if not groups:
        return {"reason": "one device only: rho is between different devices"}
    (group,) = groups
    found = group_agreement(group, measure, seed).figures
    return {
        "n_models": found.n_models,
        "value": found.rho,
        "low": found.low,
        "high": found.high,
        "null_mean": found.null_mean,
        "null_p95": found.null_p95,
        "reason": found.reason,
    }


def _place(row: dict[str, object]) -> tuple[int, str, int, int, int]:
    """Sorts the measures of one statistic next to each other."""
    tier, statistic = str(row["tier"]), str(row["statistic"])
    return (
        TIERS.index(tier) if tier in TIERS else len(TIERS),
        tier,
        int(str(row["batch"])),
        (*STATISTICS, "rho").index(statistic),
        _ORDER.index(str(row["measure"])),
    )
