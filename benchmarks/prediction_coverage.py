"""How often does the interval of a prediction hold, and how large is the error?

Every device of a workspace becomes the target in turn: `k` of its models, drawn at random, count as
measured, and the others are predicted from the other devices. Beside `fleetrank predict` stands the
weighted mean of the three nearest devices: each is moved by its mean difference to the measured
models in logarithms, and weighs 1 / (error + 0.01)^2, where the error is its mean absolute one on
them after that. One line per set of comparable platforms:

- predict, nearest: |predicted / measured - 1| in percent; its median and 90th percentile;
- won: share of the draws in which the median error of predict is the smaller one;
- held: share of the hidden values inside their interval, each target and draw counted alike;
- width: median of the square root of high / low, as a factor; `none` without intervals;
- unlike: share of the draws in which the device was said to be unlike the others, and `held` there;
- recognised, false: share of the draws in which this was said of a device that is unlike them, and
  of another one. A device is unlike them if its median error in a draw is the largest one of the
  set, and 1.5 times the median one of the others, of at least four.

`python benchmarks/prediction_coverage.py WORKSPACE/results --draws 20`; some minutes.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.prediction.comparable_devices import neighbours_of
from fleetrank.analysis.statistics.prediction.device_fit import DeviceValues
from fleetrank.analysis.statistics.prediction.device_intervals import UNLIKE, predict_device
from fleetrank.analysis.statistics.prediction.predictions import QUANTITIES
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection

MOST_MODELS = 150
"""Models drawn from a larger set: enough for any figure below, and fast."""
NEAREST = 3
LEAST_OTHERS = 4
"""Devices beside a target whose errors show what is usual."""
LEAST_SHARE = 0.5
"""Share of a set's devices with more than `k` models: a few devices that were measured more than
the rest are no draw from the set."""


@dataclass
class Scores:
    """What was seen in one set of platforms at one `k`."""

    errors: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))
    held: list[float] = field(default_factory=list)
    widths: list[Floats] = field(default_factory=list)
    unlike: list[float] = field(default_factory=list)
    is_said: list[bool] = field(default_factory=list)
    said_of: dict[bool, list[bool]] = field(default_factory=lambda: defaultdict(list))

    def add(self, other: "Scores") -> None:
        """Takes what was seen elsewhere, too."""
        for name, errors in other.errors.items():
            self.errors[name] += errors
        self.held += other.held
        self.widths += other.widths
        self.unlike += other.unlike
        for is_unlike, said in other.said_of.items():
            self.said_of[is_unlike] += said

    def judge(self) -> None:
        """Notes which devices of one draw are unlike the others, and whether this was said."""
        medians = np.array([np.median(one) for one in self.errors["predict"]])
        for at, is_said in enumerate(self.is_said):
            others = np.delete(medians, at)
            if others.size >= LEAST_OTHERS:
                is_unlike = medians[at] > max(others.max(), UNLIKE * np.median(others))
                self.said_of[bool(is_unlike)].append(is_said)


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
    logs, others = values.logs[rows], values.others(values.target)
    own = logs[:, values.target].copy()
    known = np.flatnonzero(np.isfinite(own) & np.isfinite(logs[:, others]).any(axis=1))
    if known.size <= k:
        return None
    drawn = rng.permutation(known)
    hidden = np.full(own.size, np.nan)
    hidden[drawn[k:]] = own[drawn[k:]]
    logs[:, values.target] = np.nan
    logs[drawn[:k], values.target] = own[drawn[:k]]
    return replace(values, logs=logs, facts=values.facts[rows]), hidden


def nearest(values: DeviceValues) -> Floats:
    """The weighted mean of the nearest devices, NaN where none of them measured a model."""
    others = values.logs[:, values.others(values.target)]
    shifts = values.own[:, None] - others
    n = np.isfinite(shifts).sum(axis=0)
    shift = np.nansum(shifts, axis=0) / np.maximum(n, 1)
    errors = np.nansum(np.abs(shifts - shift), axis=0) / np.maximum(n, 1)
    # One model in common leaves no error: such a device counts as the worst of the others.
    errors = np.where(n > 1, errors, errors.max())
    best = [at for at in np.argsort(errors, kind="stable") if n[at]][:NEAREST]
    moved, weights = (others + shift)[:, best], 1 / (errors[best] + 0.01) ** 2
    is_known = np.isfinite(moved)
    total = (is_known * weights).sum(axis=1)
    sums = (np.where(is_known, moved, 0.0) * weights).sum(axis=1)
    found: Floats = np.where(total > 0, sums / np.where(total > 0, total, 1.0), np.nan)
    return found


def one_draw(
    values: DeviceValues, k: int, coverage: float, seed: Sequence[int], to: Scores
) -> None:
    """Hides the values of one target and scores both predictions."""
    rng = np.random.default_rng(seed)
    made = hidden_except(values, k, rng)
    if made is None:
        return
    given, truth = made
    found, beside = predict_device(given, coverage, rng), nearest(given)
    is_scored = np.isfinite(truth + found.centre) & (np.isfinite(beside) | (k == 0))
    if not is_scored.any():
        return
    truth, low, high = truth[is_scored], found.low[is_scored], found.high[is_scored]
    for name, predicted in (("predict", found.centre), ("nearest", beside)):
        to.errors[name].append(100 * np.abs(np.expm1(predicted[is_scored] - truth)))
    to.is_said.append(found.unlike is not None)
    if np.isfinite(high - low).all():
        to.held.append(float(((low <= truth) & (truth <= high)).mean()))
        to.widths.append((high - low) / 2)
        to.unlike.append(np.nan if found.unlike is None else to.held[-1])


def row_of(name: str, n_devices: str, k: int, scores: Scores) -> str:
    """One line of the Markdown table."""
    ours, theirs = scores.errors["predict"], scores.errors["nearest"]
    cells = [name, n_devices, str(k), str(len(ours))]
    for errors in (ours, theirs):
        median, most = np.quantile(np.concatenate(errors), [0.5, 0.9])
        cells.append(f"{median:.1f} / {most:.0f}" if np.isfinite(median) else "-")
    gains = [np.median(b) - np.median(a) for a, b in zip(ours, theirs, strict=True)]
    won = np.mean([(gain > 0) + (gain == 0) / 2 for gain in gains])
    cells.append(f"{100 * won:.0f} %" if np.isfinite(gains).all() else "-")
    if not scores.held:
        return f"| {' | '.join([*cells, 'none', 'none', '-', '-', '-'])} |"
    unlike = np.isfinite(scores.unlike)
    width = np.exp(np.median(np.concatenate(scores.widths)))
    seen = f"{100 * unlike.mean():.0f} %"
    seen += f", {np.nanmean(scores.unlike):.2f}" if unlike.any() else ""
    said = [scores.said_of[one] for one in (True, False)]
    shares = [f"{100 * np.mean(one):.0f} % of {len(one)}" if one else "-" for one in said]
    cells += [f"{np.mean(scores.held):.3f}", f"{width:.2f}", seen, *shares]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--quantity", choices=tuple(QUANTITIES), default="latency")
    parser.add_argument("--k", type=int, nargs="*", default=(0, 3, 5, 10))
    chosen = parser.parse_args()
    session = Session(load_measurements(chosen.results), Selection())
    columns = "platforms | devices | k | draws | predict | nearest | won | held | width | unlike"
    print(f"| {columns} | recognised | false |")
    print("|---|---:|---:|---:|---|---|---:|---:|---:|---|---|---|")
    totals = {k: Scores() for k in chosen.k}
    n_sets = dict.fromkeys(chosen.k, 0)
    for name, targets in sets_of(session.comparable.cells, QUANTITIES[chosen.quantity].column):
        for k in chosen.k:
            n_models = [np.isfinite(one.own).sum() for one in targets]
            if np.mean(np.array(n_models) > k) < LEAST_SHARE:
                continue
            scores = Scores()
            for draw in range(chosen.draws):
                drawn = Scores()
                for number, values in enumerate(targets):
                    one_draw(values, k, chosen.coverage, (draw, number, k), drawn)
                drawn.judge()
                scores.add(drawn)
            if scores.errors["predict"]:
                print(row_of(name, str(len(targets)), k, scores), flush=True)
                totals[k].add(scores)
                n_sets[k] += 1
    for k, scores in totals.items():
        if scores.errors["predict"]:
            print(row_of(f"all {n_sets[k]} sets", "", k, scores))


if __name__ == "__main__":
    main()
