"""How well do the probabilities hold that an order of two models is kept on another device?

Every device of a set of comparable platforms becomes the target in turn. The curve of
`analysis.arrays.kept_order` is learned from the other devices, and every pair of models that the
target measured is compared with it. One line per set and variant: `one source` expects the gap from
a single other device, each in turn; `all` from all others, with 0, 3, 5 or 10 models of the target
known, drawn `--draws` times (their pairs are evidence about the target, and are left out of what is
scored). Every target, or target and source, counts alike:

- kept: share of pairs whose order is the expected one;
- constant, curve: log loss of the kept share of the other devices, and of the curve;
- decided, right: share of pairs with a probability of 0.95 or more, and how many of these are kept;
- inside, covered, width: share of the tenths of the gaps of a target whose kept share is inside
  `KeptCurve.interval`, or is a likely draw from a share inside it, and its mean width. A tenth
  has 12 to 400 pairs: where all are kept, the share is above every end below 1.

The second table compares the probability that was said with the share that was seen, in bins:
said, seen, the reach of the 95 % interval of their difference, and the number of pairs. Pairs of a
device are not independent, so the interval comes from the differences between devices: each target
is left out in turn (jackknife, Student's t). A last sentence counts the bins that are off, and how
many would be off by chance if every probability were right on average over devices.

`python benchmarks/kept_order.py WORKSPACE/results ...`; a few minutes for AI Hub.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from fleetrank.analysis.arrays.kept_order import (
    MIN_DEVICES,
    MIN_PAIRS,
    DeviceCurve,
    Ints,
    KeptCurve,
    KeptPairs,
    learned_curve,
    level_of,
    pairs_on,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection

LEVELS = (0, 3, 5, 10)
"""Known models of the target."""
SURE = 0.95
EDGES = (0.55, 0.7, 0.8, 0.9, 0.95, 0.99)
MANY = 1000
"""Pairs that a bin has more of to be counted."""
OFF = 0.03
"""A bin is off where what was said and seen differ by more."""
TENTHS = 10
TAIL = 0.025
"""The sampling error of a kept share explains what is less rare than this."""
COLUMNS = ("kept", "constant", "curve", "decided", "right", "inside", "covered", "width")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Pairs whose probability is in one range.

    Attributes:
        said: mean probability.
        seen: share whose order was kept.
        error: standard error over targets of the difference; NaN with one target.
        reach: half of its 95 % interval; NaN with one target.
        n: pairs.
    """

    said: float
    seen: float
    error: float
    reach: float
    n: int

    @property
    def is_off(self) -> bool:
        """Whether what was said is wrong by more than `OFF`."""
        return abs(self.said - self.seen) > OFF


@dataclass
class Scores:
    """What was seen in one set of platforms with one variant; a list has an item per target."""

    targets: list[int] = field(default_factory=list)
    kept: list[Floats] = field(default_factory=list)
    said: list[Floats] = field(default_factory=list)
    constant: list[float] = field(default_factory=list)
    inside: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    covered: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    widths: list[Floats] = field(default_factory=list)

    def add(
        self, target: int, pairs: KeptPairs, curve: KeptCurve | DeviceCurve, usual: float
    ) -> None:
        """Scores the pairs of one target, whose other devices keep the share `usual`."""
        self.targets.append(target)
        said = curve.probability(pairs.gaps)
        low, high = curve.interval(pairs.gaps)
        parts = np.array_split(np.argsort(pairs.gaps), TENTHS)
        seen, least, most = (
            np.array([values[part].mean() for part in parts]) for values in (pairs.kept, low, high)
        )
        self.kept.append(pairs.kept)
        self.said.append(said)
        self.constant.append(log_loss(np.full(said.size, usual), pairs.kept))
        n = np.array([part.size for part in parts], dtype=np.int64)
        self.inside.append((least <= seen) & (seen <= most))
        self.covered.append(
            (special.bdtr(np.ceil(seen * n), n, least) >= TAIL)
            & (special.bdtr(n - np.floor(seen * n), n, 1 - most) >= TAIL)
        )
        self.widths.append(most - least)

    def figures(self) -> dict[str, float]:
        """The columns of the first table."""
        said, kept = np.concatenate(self.said), np.concatenate(self.kept)
        sure = said >= SURE
        losses = [log_loss(*one) for one in zip(self.said, self.kept, strict=True)]
        return {
            "kept": float(np.mean([one.mean() for one in self.kept])),
            "constant": float(np.mean(self.constant)),
            "curve": float(np.mean(losses)),
            "decided": float(np.mean([(one >= SURE).mean() for one in self.said])),
            "right": float(kept[sure].mean()) if sure.any() else np.nan,
            "inside": float(np.mean(self.inside)),
            "covered": float(np.mean(self.covered)),
            "width": float(np.mean(self.widths)),
        }

    def bins(self) -> list[Bin | None]:
        """What was said and seen in each bin of the probability; `None` without a pair."""
        target = np.repeat(self.targets, [one.size for one in self.said])
        said, kept = np.concatenate(self.said), np.concatenate(self.kept)
        at = np.digitize(said, EDGES)
        parts = (at == number for number in range(len(EDGES) + 1))
        return [bin_of(target[part], said[part], kept[part]) for part in parts]


def bin_of(target: Ints, said: Floats, kept: Floats) -> Bin | None:
    """One bin from its pairs, (n_pairs,) each; `None` without one."""
    if not said.size:
        return None
    sums = np.array([np.bincount(target, one) for one in (np.ones_like(said), said, kept)])
    sums = sums[:, sums[0] > 0]
    m, error, reach = sums.shape[1], np.nan, np.nan
    if m > 1:
        n, of_said, of_kept = sums.sum(axis=1, keepdims=True) - sums
        error = math.sqrt((m - 1) * float(np.var((of_kept - of_said) / n)))
        reach = error * float(special.stdtrit(m - 1, 1 - TAIL))
    mean_said, seen = float(said.mean()), float(kept.mean())
    return Bin(said=mean_said, seen=seen, error=error, reach=reach, n=said.size)


def counted(bins: Sequence[Bin]) -> str:
    """How many bins are off, and how many would be by chance."""
    many = [one for one in bins if one.n > MANY and one.error > 0]
    off = [one for one in many if one.is_off]
    inside = sum(abs(one.said - one.seen) <= one.reach for one in off)
    chance = sum(2 * float(special.ndtr(-OFF / one.error)) for one in many)
    return (
        f"Of {len(many)} bins with more than {MANY:,} pairs, {len(off)} are off by more than "
        f"{100 * OFF:.0f} points, {inside} of these inside the interval over devices; by chance "
        f"alone {chance:.1f} would be off."
    )


def log_loss(said: Floats, kept: Floats) -> float:
    """Minus the mean log likelihood, of probabilities that are kept off 0 and 1."""
    said = np.clip(said, 1e-6, 1 - 1e-6)
    return -float((special.xlogy(kept, said) + special.xlog1py(1 - kept, -said)).mean())


def sets_of(session: Session, *, across: bool) -> Iterator[tuple[str, Floats]]:
    """Each set of comparable platforms and its log latencies, (n_models, n_devices).

    A device model has one column, that of its platform with most models. `across` makes one set of
    each source: every unit of a device, as CPU and GPU, is a device of its own.
    """
    panel = session.panel
    logs = np.log(panel.latency)
    best: dict[str, dict[str, int]] = defaultdict(dict)
    n_models = np.isfinite(logs).sum(axis=0)
    facts = panel.platforms.with_columns(name=pl.coalesce("device_model", "device").cast(pl.String))
    rows = facts.to_dicts()
    for at in sorted(range(len(rows)), key=n_models.__getitem__):
        row = rows[at]
        options = "" if row["options"] == "{}" else f" {row['options']}"
        source = row["device"].split("-")[0] if row["origin"] == "imported" else row["origin"]
        parts = [str(row[name]) for name in ("runtime", "backend", "precision", "mode")]
        name, device = f"{source} {' '.join(parts)}{options}", row["name"]
        if across:
            name, device = f"{source} across", f"{device} {row['backend']}"
        best[name][device] = at
    for name, columns in best.items():
        yield name, logs[:, sorted(columns.values())]


def variants(n_devices: int, target: int, draws: int) -> Iterator[tuple[str, int, list[int], int]]:
    """Name, number of known models, sources and draw of every way to expect one target's gaps."""
    others = [one for one in range(n_devices) if one != target]
    for one in others:
        yield "one source", 0, [one], 0
    for known in LEVELS:
        for draw in range(draws if known else 1):
            yield f"all, {known} known", known, others, draw


def scores_of(logs: Floats, draws: int = 1) -> dict[str, Scores]:
    """Every device as the target, by variant; a target with too few pairs is left out."""
    n_devices = logs.shape[1]
    clusters: Ints = np.arange(n_devices, dtype=np.int64)
    by_variant: dict[str, Scores] = defaultdict(Scores)
    for target in range(n_devices):
        without = logs.copy()
        without[:, target] = np.nan
        for name, known, sources, draw in variants(n_devices, target, draws):
            columns = np.array(sources, dtype=np.int64)
            seed = (target, known, len(sources), sources[0], *([draw] if draw else ()))
            rng = np.random.default_rng(seed)
            pairs = pairs_on(logs, target, columns, clusters, known, rng)
            curve = learned_curve(without, columns, clusters, level_of(known), rng)
            if curve is None or pairs.gaps.size < MIN_PAIRS:
                continue
            of_target = curve.on(pairs.own) if pairs.own else curve
            played = (
                pairs_on(without, other, columns, clusters, level_of(known), rng)
                for other in range(n_devices)
                if other != target and (columns != other).any()
            )
            rates = [one.kept.mean() for one in played if one.gaps.size >= MIN_PAIRS]
            by_variant[name].add(target, pairs, of_target, float(np.mean(rates)))
    return by_variant


def text_of(one: Bin | None) -> str:
    """A cell of the second table."""
    return "-" if one is None else f"{one.said:.3f} {one.seen:.3f} ±{one.reach:.3f} ({one.n})"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As Markdown."""
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def main() -> None:
    """Prints two Markdown tables for each workspace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--across", action="store_true", help="all units of a source are one set")
    parser.add_argument("--draws", type=int, default=1, help="of the known models of a target")
    chosen = parser.parse_args()
    for results in chosen.results:
        figures: list[list[str]] = []
        bins: list[list[str]] = []
        every: list[Bin] = []
        session = Session(load_measurements(results), Selection())
        for name, logs in sets_of(session, across=chosen.across):
            if logs.shape[1] <= MIN_DEVICES:
                continue
            for variant, scores in scores_of(logs, chosen.draws).items():
                start = [f"{name} ({logs.shape[1]})", variant]
                values = scores.figures()
                figures.append([*start, *(f"{values[one]:.3f}" for one in COLUMNS)])
                cells = scores.bins()
                bins.append([*start, *(text_of(one) for one in cells)])
                every += [one for one in cells if one is not None]
        print_table(("platforms (devices)", "sources", *COLUMNS), figures)
        edges = [f"below {EDGES[0]}", *(f"from {one}" for one in EDGES)]
        print_table(("platforms (devices)", "sources", *edges), bins)
        print(counted(every))


if __name__ == "__main__":
    main()
