"""Is the order of two models kept on a device that measured neither? How often, by their gap.

The gap on such a device is expected from the platforms that measured both. How often an order with
such a gap is kept is learned from devices that measured many models: each is treated as if it were
the unknown one. The pairs among the models that were measured on the device say how well it follows
the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from fleetrank.analysis.arrays.ranking import Floats

Ints = npt.NDArray[np.int64]
Pair = tuple[Ints, Ints]
"""Rows of the first and of the second model, (n_pairs,) each."""

MIN_DEVICES = 3
"""Other device models needed: the spread of two devices says little about a third."""
MIN_MODELS = 5
MIN_PAIRS = 10
"""Pairs of models that a device needs to count as one: those of five models."""
MIN_COMMON = 2
"""Models that two platforms need in common before their shifts have a spread."""
FLOOR = 0.05
"""Added to each spread of logarithms: processes of one device differ by 4 to 6 %."""
_MAX_PAIRS = 4000
"""Drawn from the pairs of a device that has more."""
_BINS = 200
_COVERAGE = 0.95
_STEPS = np.vstack([np.zeros(3), np.diag([-1.0, 0.5, 1.0])])
"""Of the search: those of SciPy follow the size of the start, thus the unit of the gap."""
_LEVELS = (2, 3, 5, 10)
"""Measured models of a target from which on its weights are known better, see `level_of`."""
_USUAL = 2.0
"""Sources that the usual spread counts as. With 1 to 4 the loss is the same within 0.002; without
it, a pair that two of five unlike devices knew was kept in 0.74 where 0.93 was said."""
_OF_ERROR = 0.5
"""Part of the standard error of a spread that is added to it, see `closeness`. With 0.35 to 0.7 the
loss is the same within 0.003; without it, three known models of edge-compat are worse than
none."""
MIN_OWN = 3
"""Measured models whose pairs are evidence about a device; `predict` calls none unlike by fewer."""
_FOLLOWS = np.array([1.0, 0.0, -1.0])
"""How a device may follow the others: as they do, not at all, or in the opposite order."""
_UNLIKE = 0.1
"""Devices of the two other kinds that are expected among n + 1, if n follow each other. With 0.03
to 0.1 the loss is the same within 0.005; with 0.06, five models of an unrelated device said 0.553
where 0.503 was kept."""
_OWN_PAIRS = 2.0
"""Pairs that a measured model of a device counts as: all up to five models. With 1, five models of
an unrelated device said 0.61 where 0.49 was kept; with 4 intervals hold less."""
_OWN_SPREAD = 0.6
"""Part of the spread of the scales in the mean over a device's own scale: the curve has the shape
of all devices together, which is flatter than that of each. With 0.5 to 0.7 the loss is the same
within 0.003."""
_LEAST = 0.005
"""Of the probability of an own pair: a single one may differ for another reason. With 0.02 the loss
is 0.2 % larger."""
_DEVIATIONS = np.linspace(-4, 4, 41)
"""Of a device's own scale, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPairs:
    """Pairs of models on one platform that measured both.

    Attributes:
        gaps: that were expected there, see `Expected`, (n_pairs,).
        kept: 1 where the measured order is the expected one, 0 where it is reversed, 0.5 where both
            latencies are equal, (n_pairs,).
        own: pairs of the models that count as measured; `None` if these are among the others.
    """

    gaps: Floats
    kept: Floats
    own: "KeptPairs | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCurve:
    """How often an order is kept: 1/2 + (1 - floor)/2 (1 - exp(-(gap / scale)^shape)).

    Attributes:
        floor: share of pairs whose order does not follow any gap.
        spread: standard deviation over device models of the logarithm of their own scale.
        n_devices: device models behind it.
        n_models: most models that one of them measured.
    """

    scale: float
    shape: float
    floor: float
    spread: float
    n_devices: int
    n_models: int

    def probability(self, gap: npt.ArrayLike, factor: npt.ArrayLike = 1.0) -> Floats:
        """That the order is kept on a device whose scale is `factor` times the usual one."""
        scale = self.scale * np.asarray(factor, dtype=np.float64)
        found: Floats = _curve(np.asarray(gap, np.float64), scale, self.shape, self.floor)
        return found

    def interval(self, gap: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Of the probability on one more device: 95 % of such devices lie inside."""
        reach = math.exp(self._reach * self.spread)
        return self.probability(gap, reach), self.probability(gap, 1 / reach)

    @property
    def _reach(self) -> float:
        """Half of the interval of the logarithm of one more device's scale, in spreads."""
        quantile = float(special.stdtrit(self.n_devices - 1, (1 + _COVERAGE) / 2))
        return quantile * math.sqrt(1 + 1 / self.n_devices)

    def on(self, own: KeptPairs) -> "DeviceCurve":
        """The curve of one device, from the pairs of the models that were measured on it.

        Its scale and the way it follows the others have every value with a prior; the pairs say
        which are likely. The pairs of n models are not independent: they count as `_OWN_PAIRS` n.
        """
        wide = self._reach / float(special.ndtri((1 + _COVERAGE) / 2))
        factors = np.exp(wide * self.spread * _DEVIATIONS)[:, None]
        risen = self.probability(own.gaps, factors) - 0.5
        said = np.clip(0.5 + _FOLLOWS[:, None] * risen[:, None], _LEAST, 1 - _LEAST)
        found = special.xlogy(own.kept, said) + special.xlog1py(1 - own.kept, -said)
        n_models = (1 + math.sqrt(1 + 8 * own.gaps.size)) / 2
        evidence = found.sum(axis=-1) * min(1, _OWN_PAIRS * n_models / max(own.gaps.size, 1))
        other = _UNLIKE / (self.n_devices + 1)
        evidence += np.log([1 - other, other / 2, other / 2])
        squares = _DEVIATIONS[:, None] ** 2 / 2
        return DeviceCurve(
            curve=self,
            factors=np.broadcast_to(factors, evidence.shape).ravel(),
            follows=np.broadcast_to(_FOLLOWS, evidence.shape).ravel(),
            weights=special.softmax(evidence - squares * (wide / _OWN_SPREAD) ** 2).ravel(),
            wide=special.softmax(evidence - squares).ravel(),
        )

    def shown(self, probability: npt.ArrayLike) -> Floats:
        """No nearer to 0 or 1 than so many device models can show.

        Without any contradiction among n of them, one more has the order with probability
        (n + 1/2) / (n + 1) (Jeffreys 1946).
        """
        most = (self.n_devices + 0.5) / (self.n_devices + 1)
        return np.clip(probability, 1 - most, most)

    def gap_for(self, probability: float) -> float | None:
        """The smallest gap whose order is kept so often; `None` if none is."""
        if 2 * probability - 1 >= 1 - self.floor:
            return None
        share = (2 * probability - 1) / (1 - self.floor)
        return float(self.scale * (-math.log1p(-share)) ** (1 / self.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCurve:
    """How often an order is kept on one device with measured models, see `KeptCurve.on`.

    Attributes:
        curve: of the other devices.
        factors: possible scales of the device over the usual one, (n,).
        follows: how it follows the others with each, see `_FOLLOWS`, (n,).
        weights: how likely each of these is, (n,).
        wide: the same, with the spread of the scales that is possible among few devices, (n,).
    """

    curve: KeptCurve
    factors: Floats
    follows: Floats
    weights: Floats
    wide: Floats

    @property
    def is_unlike(self) -> bool:
        """Whether the device more likely does not follow the others, or in the opposite order."""
        return float(self.weights[self.follows < 1].sum()) > 0.5

    def _each(self, gap: npt.ArrayLike) -> Floats:
        risen = self.curve.probability(np.asarray(gap, np.float64)[..., None], self.factors) - 0.5
        each: Floats = 0.5 + self.follows * risen
        return each

    def probability(self, gap: npt.ArrayLike) -> Floats:
        """That the order is kept on the device."""
        mean: Floats = self._each(gap) @ self.weights
        return mean

    def interval(self, gap: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Of the probability: it is inside with 95 %."""
        each, tail = self._each(gap), (1 - _COVERAGE) / 2
        low, high = np.quantile(
            each, [tail, 1 - tail], axis=-1, weights=self.wide, method="inverted_cdf"
        )
        said = each @ self.weights
        return np.minimum(low, said), np.maximum(high, said)


def _curve(gap: Floats, scale: float | Floats, shape: float, floor: float) -> Floats:
    with np.errstate(over="ignore"):
        risen: Floats = 0.5 + (1 - floor) / 2 * -np.expm1(-((gap / scale) ** shape))
    return risen


def level_of(n_measured: int) -> int:
    """How many of a target's measured models its weights are learned with: 0, 2, 3, 5 or 10.

    A device that plays the target is given as many: one curve serves all targets of a level.
    """
    return max((one for one in _LEVELS if one <= n_measured), default=0)


def closeness(
    logs: Floats,
    target: int | None,
    known: Ints,
    sources: Ints,
    clusters: Ints,
    *,
    floor: float | None = None,
) -> Floats:
    """How much each source says about the target, (n_sources,); they sum to 1.

    The weight is the inverse square of a spread plus a floor. The spread is that of the shifts
    between source and target over the known models; a source with fewer than 2 of these gets the
    largest spread seen. Platforms of one device model share its weight.

    A spread of few models is small by chance, and would give one source all the weight. So the
    floor is at least `_OF_ERROR` of its standard error: the pooled spread / sqrt(2 (n - 1)).

    Args:
        logs: log latency, (n_models, n_platforms), NaN where missing.
        target: a column; `None` for a device without any figure.
        known: rows of the models that count as measured on the target.
        sources: columns.
        clusters: number of the device model of each column, (n_platforms,).
        floor: of the spread; `None` for `FLOOR` and the standard error.
    """
    own = np.full(known.size, np.nan) if target is None else logs[known, target]
    shifts = logs[np.ix_(known, sources)] - own[:, None]
    free = np.isfinite(shifts).sum(axis=0) - 1
    is_known = free >= MIN_COMMON - 1
    spread = np.ones(sources.size)
    if is_known.any():
        spread[is_known] = np.nanstd(shifts[:, is_known], axis=0, ddof=1)
        pooled = math.sqrt(np.average(spread[is_known] ** 2, weights=free[is_known]))
        error = pooled / np.sqrt(2 * free[is_known])
        spread[is_known] += np.maximum(FLOOR, _OF_ERROR * error) if floor is None else floor
        spread[~is_known] = spread[is_known].max()
    _, at, size = np.unique(clusters[sources], return_inverse=True, return_counts=True)
    weight = 1 / (spread**2 * size[at])
    total: Floats = weight / weight.sum()
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the sources expect of log ratios, (...) each; NaN where no source knows it.

    Attributes:
        ratio: weighted mean of the known log ratios.
        gap: its size over the spread of the sources, to which a floor is added: 1.1 on each of ten
            devices says more than a mean of 1.1.
    """

    ratio: Floats
    gap: Floats


def expected(ratios: Floats, weights: Floats, usual: float) -> Expected:
    """From the log ratios on the sources, (..., n_sources), NaN where one is missing.

    The spread is that of one more device: two sources that agree by chance, or a single one,
    are no proof that devices agree, so `usual` counts as `_USUAL` sources more.

    Args:
        ratios: of each pair of models.
        weights: of the sources.
        usual: of `usual_variance`.
    """
    mean, squares, n, own = _moments(ratios, weights)
    variance = (squares + _USUAL * usual) / (np.maximum(n, 1) - 1 + _USUAL) * (1 + own)
    return Expected(ratio=mean, gap=np.abs(mean) / np.sqrt(variance + FLOOR**2))


def usual_variance(ratios: Floats, weights: Floats) -> float:
    """Of the sources around the mean of a pair, over all pairs; 0 with single sources only."""
    _, squares, n, _ = _moments(ratios, weights)
    return float(np.nansum(squares) / max(np.maximum(n - 1, 0).sum(), 1))


def _moments(ratios: Floats, weights: Floats) -> tuple[Floats, Floats, Ints, Floats]:
    """Mean, sum of squares, number of sources, and variance of the mean in that of a source."""
    is_known = np.isfinite(ratios)
    share = is_known * weights
    n, total = is_known.sum(axis=-1), share.sum(axis=-1)
    share = share / np.where(total > 0, total, np.nan)[..., None]
    known = np.where(is_known, ratios, 0.0)
    mean = (share * known).sum(axis=-1)
    squares = n * (share * (known - mean[..., None]) ** 2).sum(axis=-1)
    return mean, squares, n, (share**2).sum(axis=-1)


def pairs_on(
    logs: Floats, target: int, sources: Ints, clusters: Ints, n_known: int, rng: np.random.Generator
) -> KeptPairs:
    """A measured platform as if `n_known` of its models were measured: what is expected and kept.

    Sources of the target device model are left out, and so are pairs of the known models if enough
    others are left; these are then `own`.
    """
    others = sources[clusters[sources] != clusters[target]]
    has = np.isfinite(logs[:, target])
    rows = np.flatnonzero(has & np.isfinite(logs[:, others]).any(axis=1))
    known = rng.permutation(rows)[:n_known]
    hidden = np.setdiff1d(rows, known)
    is_apart = math.comb(hidden.size, 2) >= MIN_PAIRS
    pair = some_pairs(hidden if is_apart else rows, rng)
    weights = closeness(logs, target, known, others, clusters)
    usual = usual_variance(_log_ratios(logs, pair, others), weights)
    found = measured_pairs(logs, target, pair, others, weights, usual)
    if not is_apart or n_known < MIN_OWN:
        return found
    of_known = some_pairs(known, rng)
    return replace(found, own=measured_pairs(logs, target, of_known, others, weights, usual))


def _log_ratios(logs: Floats, pair: Pair, columns: Ints) -> Floats:
    ratios: Floats = logs[np.ix_(pair[1], columns)] - logs[np.ix_(pair[0], columns)]
    return ratios


def measured_pairs(
    logs: Floats, target: int, pair: Pair, sources: Ints, weights: Floats, usual: float
) -> KeptPairs:
    """What the sources expect of pairs of models that the target measured, and what is kept.

    Args:
        logs: as for `closeness`.
        target: a column.
        pair: models that the target measured.
        sources: columns.
        weights: of the sources.
        usual: as for `expected`.
    """
    said = expected(_log_ratios(logs, pair, sources), weights, usual)
    measured = logs[pair[1], target] - logs[pair[0], target]
    is_known = np.isfinite(said.gap)
    kept = (1 + np.sign(said.ratio * measured)) / 2
    return KeptPairs(gaps=said.gap[is_known], kept=kept[is_known])


def some_pairs(rows: Ints, rng: np.random.Generator) -> Pair:
    """All pairs of some rows, or `_MAX_PAIRS` drawn ones."""
    if math.comb(rows.size, 2) <= _MAX_PAIRS:
        first, second = np.triu_indices(rows.size, 1)
        return rows[first], rows[second]
    first = rng.integers(rows.size, size=_MAX_PAIRS)
    second = (first + rng.integers(1, rows.size, size=_MAX_PAIRS)) % rows.size
    return rows[first], rows[second]


def learned_curve(
    logs: Floats, sources: Ints, clusters: Ints, n_known: int, rng: np.random.Generator
) -> KeptCurve | None:
    """The curve of `sources`, from every platform that measured enough models.

    `None` if these are of fewer than `MIN_DEVICES` device models. Arguments as for `closeness`.
    """
    played: list[tuple[int, KeptPairs]] = []
    for target in range(logs.shape[1]):
        if (clusters[sources] != clusters[target]).any():
            pairs = pairs_on(logs, target, sources, clusters, n_known, rng)
            if pairs.gaps.size >= MIN_PAIRS:
                played.append((int(clusters[target]), pairs))
    n_models = int(np.isfinite(logs).sum(axis=0).max(initial=0))
    return fit_curve([pairs for _, pairs in played], [one for one, _ in played], n_models)


def fit_curve(
    pairs: Sequence[KeptPairs], devices: Sequence[int], n_models: int
) -> KeptCurve | None:
    """The likeliest curve, each device model weighted alike; `None` below `MIN_DEVICES` of them.

    Args:
        pairs: of each platform.
        devices: number of the device model of each platform.
        n_models: most models of a platform.
    """
    from scipy import optimize  # half a second that other tables do not need

    names, at, size = np.unique(np.array(devices), return_inverse=True, return_counts=True)
    if names.size < MIN_DEVICES:
        return None
    tables = _binned(pairs)
    weights = 1 / size[at]
    together = np.einsum("p,pbc->bc", weights, tables)
    gap = np.median(np.concatenate([one.gaps for one in pairs])) or 1.0
    start = np.array([math.log(gap), 0.0, -4.0])
    found = optimize.minimize(
        lambda given: _loss(together, *_natural(given)),
        start,
        method="Nelder-Mead",
        options={"initial_simplex": start + _STEPS, "maxiter": 600, "xatol": 1e-3, "fatol": 1e-7},
    )
    scale, shape, floor = _natural(found.x)
    own = [_own_scale(table, scale, shape, floor) for table in tables]
    by_device = np.bincount(at, own) / size
    return KeptCurve(
        scale=scale,
        shape=shape,
        floor=floor,
        spread=float(by_device.std(ddof=1)),
        n_devices=names.size,
        n_models=n_models,
    )


def _natural(given: Sequence[float] | Floats) -> tuple[float, float, float]:
    """Scale, shape and floor of the parameters that a search moves without bounds."""
    scale, shape, floor = given
    return math.exp(np.clip(scale, -30, 30)), math.exp(np.clip(shape, -3, 3)), special.expit(floor)


def _binned(pairs: Sequence[KeptPairs]) -> Floats:
    """Share of pairs, sum of gaps and of kept ones in bins of the gap, (n_platforms, n_bins, 3)."""
    every = np.concatenate([one.gaps for one in pairs])
    edges = np.unique(np.quantile(every, np.linspace(0, 1, _BINS + 1)))
    tables = np.zeros((len(pairs), edges.size + 1, 3))
    for table, one in zip(tables, pairs, strict=True):
        at = np.searchsorted(edges, one.gaps)
        for column, values in enumerate((np.ones_like(one.gaps), one.gaps, one.kept)):
            table[:, column] = np.bincount(at, values, len(table)) / one.gaps.size
    return tables


def _loss(table: Floats, scale: float, shape: float, floor: float) -> float:
    """Minus the mean log likelihood of the pairs in the bins."""
    share, gaps, kept = table[table[:, 0] > 0].T
    said = np.clip(_curve(gaps / share, scale, shape, floor), 1e-9, 1 - 1e-9)
    return -float(special.xlogy(kept, said).sum() + special.xlog1py(share - kept, -said).sum())


_REACH = math.log(30)
"""A device's own scale is searched up to 30 times from the usual one."""


def _own_scale(table: Floats, scale: float, shape: float, floor: float) -> float:
    """Log of the scale that suits one platform best, over the usual one."""
    from scipy import optimize

    found = optimize.minimize_scalar(
        lambda log: _loss(table, scale * math.exp(log), shape, floor),
        bounds=(-_REACH, _REACH),
        method="bounded",
    )
    return float(found.x)
