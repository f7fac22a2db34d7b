"""How often does the interval of a prediction hold, and how large is the error?

Every device of a workspace becomes the target in turn: `k` of its models, drawn at random, count as
measured, and the others are predicted from the other devices. Beside `fleetrank predict` stand the
straight line through the logarithms of the device that fits the `k` models best (left-out errors),
and the ratio of one of the `k` models on that device. One line per set of comparable platforms:

- error: |log(predicted / measured)| as a factor; its median and 90th percentile;
- held: share of the hidden values inside their interval, each target and draw counted alike;
- width: median of the square root of high / low, as a factor; `none` without intervals.

`python benchmarks/prediction_coverage.py WORKSPACE/results --draws 40`; two to five minutes.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.device_fit import DeviceValues, neighbours_of, predict_device
from fleetrank.analysis.statistics.predictions import QUANTITIES
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection

MOST_MODELS = 150
"""Models drawn from a larger set: enough for any figure below, and fast."""
LEAST_OF_LINE = 3
"""A line through two models has no left-out error."""
LEAST_SHARE = 0.5
"""Share of a set's devices with more than `k` models: a few devices that were measured more than
the rest are no draw from the set."""
COLUMNS = ("predict", "line", "ratio")


@dataclass
class Scores:
    """What was seen in one set of platforms at one `k`."""

    errors: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))
    held: list[float] = field(default_factory=list)
    widths: list[Floats] = field(default_factory=list)


def sets_of(cells: pl.DataFrame, column: str) -> Iterator[tuple[str, list[DeviceValues]]]:
    """Each set of comparable platforms with the values of each of them as the target."""
    by_name: dict[str, list[DeviceValues]] = defaultdict(list)
    platforms = cells.filter(pl.col(column) > 0).unique("platform_key").sort("platform_key")
    for row in platforms.iter_rows(named=True):
        options = "" if row["options"] == "{}" else f" {row['options']}"
        source = row["device"].split("-")[0] if row["origin"] == "imported" else row["origin"]
        name = f"{source} {row['runtime']} {row['backend']} {row['precision']}{options}"
        try:
            beside = neighbours_of(cells, row["platform_key"], column, None, is_new=False)
        except NoDataError:
            continue
        if beside.devices:
            by_name[f"{name} {row['mode']}"].append(beside.values)
    yield from by_name.items()


def hidden_except(
    values: DeviceValues, k: int, rng: np.random.Generator
) -> tuple[DeviceValues, Floats] | None:
    """The target with `k` drawn models left, of at most `MOST_MODELS`, and its hidden values."""
    n_models = values.own.size
    rows = np.sort(rng.choice(n_models, min(n_models, MOST_MODELS), replace=False))
    others, own = values.others[rows], values.own[rows]
    known = np.flatnonzero(np.isfinite(own) & np.isfinite(others).any(axis=1))
    if known.size <= k:
        return None
    kept = rng.permutation(known)[:k]
    left = np.full(own.size, np.nan)
    left[kept] = own[kept]
    hidden = np.full(own.size, np.nan)
    hidden[np.setdiff1d(known, kept)] = own[np.setdiff1d(known, kept)]
    return DeviceValues(others=others, own=left, facts=values.facts[rows]), hidden


def best_line(values: DeviceValues) -> tuple[Floats, int] | None:
    """Predictions of the single device whose line fits the measured models best, and which."""
    best: tuple[Floats, int] | None = None
    least = np.inf
    for device in range(values.others.shape[1]):
        x = values.others[:, device]
        both = np.isfinite(x) & np.isfinite(values.own)
        n = int(both.sum())
        if n < LEAST_OF_LINE or np.ptp(x[both]) < 1e-9:
            continue
        centred = x[both] - x[both].mean()
        square = float((centred**2).sum())
        y = values.own[both]
        slope = float(centred @ y) / square
        left = np.maximum(1 - 1 / n - centred**2 / square, 1e-3)
        errors = (y - y.mean() - slope * centred) / left
        error = float((errors**2).mean())
        if error < least:
            best, least = (y.mean() + slope * (x - x[both].mean()), device), error
    return best


def one_draw(
    values: DeviceValues, k: int, coverage: float, seed: Sequence[int], to: Scores
) -> None:
    """Hides the values of one target and scores the three predictions."""
    rng = np.random.default_rng(seed)
    made = hidden_except(values, k, rng)
    if made is None:
        return
    given, hidden = made
    found = predict_device(given, coverage, rng)
    is_scored = np.isfinite(hidden) & np.isfinite(found.centre)
    if not is_scored.any():
        return
    truth = hidden[is_scored]
    low, high = found.low[is_scored], found.high[is_scored]
    is_finite = np.isfinite(low) & np.isfinite(high)
    to.errors["predict"].append(np.abs(found.centre[is_scored] - truth))
    if is_finite.any():
        to.held.append(float(((low <= truth) & (truth <= high))[is_finite].mean()))
        to.widths.append(((high - low) / 2)[is_finite])
    if (lined := best_line(given)) is None:
        return
    line, device = lined
    reference = rng.choice(np.flatnonzero(np.isfinite(given.own + given.others[:, device])))
    ratio = given.others[:, device] + given.own[reference] - given.others[reference, device]
    for name, predicted in (("line", line), ("ratio", ratio)):
        to.errors[name].append(np.abs(predicted[is_scored] - truth))


def row_of(name: str, n_devices: int, k: int, scores: Scores) -> str:
    """One line of the Markdown table."""
    cells = [name, str(n_devices), str(k), str(len(scores.errors["predict"]))]
    for column in COLUMNS:
        errors = np.concatenate(scores.errors[column]) if scores.errors[column] else np.zeros(0)
        errors = errors[np.isfinite(errors)]
        median, most = np.exp(np.quantile(errors, [0.5, 0.9])) if errors.size else (None, None)
        cells.append("-" if median is None else f"{median:.3f} / {most:.2f}")
    if scores.held:
        cells += [
            f"{np.mean(scores.held):.3f}",
            f"{np.exp(np.median(np.concatenate(scores.widths))):.2f}",
        ]
    else:
        cells += ["none", "none"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--quantity", choices=tuple(QUANTITIES), default="latency")
    parser.add_argument("--k", type=int, nargs="*", default=(0, 5, 10, 20))
    chosen = parser.parse_args()
    session = Session(load_measurements(chosen.results), Selection())
    print("| platforms | devices | k | targets x draws | predict | line | ratio | held | width |")
    print("|---|---:|---:|---:|---|---|---|---:|---:|")
    for name, targets in sets_of(session.comparable.cells, QUANTITIES[chosen.quantity].column):
        for k in chosen.k:
            n_models = [np.isfinite(one.own).sum() for one in targets]
            if np.mean(np.array(n_models) > k) < LEAST_SHARE:
                continue
            scores = Scores()
            for draw in range(chosen.draws):
                for number, values in enumerate(targets):
                    one_draw(values, k, chosen.coverage, (draw, number, k), scores)
            if scores.errors["predict"]:
                print(row_of(name, len(targets), k, scores), flush=True)


if __name__ == "__main__":
    main()
