"""The figures of the study's claims from single values, without the analysis.

Latencies are exact fractions, so that equal products are ties; every mean is written out. A figure
is (value, models, pairs, null), with `None` where there is none.
"""

import bisect
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import stats

Figure = tuple[float | None, int | None, int | None, float | None]
Rows = list[tuple[Mapping[str, str], Figure]]
Found = list[tuple[object, int, float | None]]
NONE: Figure = (None, None, None, None)
_TIERS = ("gpu", "cpu", "edge")


@dataclass(frozen=True, kw_only=True, eq=False)
class Platform:
    """One platform: model to latency, and to the bytes of memory where they are known."""

    device: str
    tier: str
    runtime: str
    rest: tuple[object, ...] = ()
    batch: int = 1
    latency: Mapping[str, Fraction]
    memory: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Model:
    """What is equal on all platforms; `None` is not known."""

    flops: int | None = None
    accuracy: float | None = None
    family: str = "other"


Values = Callable[[Platform], Mapping[str, Fraction]]
Pairs = Sequence[tuple[Platform, Platform]]


def claims_by_hand(
    study: Mapping[str, list[dict[str, object]]], hand: Mapping[str, Rows]
) -> dict[str, Figure]:
    """Claim to its figure: the first of its figures that has rows, and the mean of these.

    A claim about other rows than the given ones has none.
    """
    found = dict.fromkeys((str(one["claim"]) for one in study["claims"]), NONE)
    for claim in study["claims"]:
        wanted, least = claim.get("row", {}).items(), claim.get("least_rows", 1)  # type: ignore[attr-defined]
        for name in () if "selection" in claim else claim["figure"]:  # type: ignore[attr-defined]
            rows = [
                figure for where, figure in hand.get(name, ())
                if figure[0] is not None and all(where[key] == word for key, word in wanted)
            ]  # fmt: skip
            if rows and len(rows) >= least:  # type: ignore[operator]
                values, models, pairs, nulls = zip(*rows, strict=True)
                counts = (None if None in some else min(some) for some in (models, pairs))
                null = None if None in nulls else mean(nulls)
                found[str(claim["claim"])] = (mean(values), *counts, null)  # type: ignore[arg-type, assignment]
                break
    return found


def figures_by_hand(
    models: Mapping[str, Model], platforms: Sequence[Platform], *, any_batch: bool = False
) -> dict[str, Rows]:
    """Each figure of `study.toml`: its rows, as the words that choose one and the figure."""
    flops = {name: one.flops for name, one in models.items() if one.flops}
    has_memory = any(one.memory for one in platforms)
    end = "" if has_memory else "_no_memory"

    def frm(one: Platform) -> dict[str, Fraction]:
        parts = one.memory if has_memory else dict.fromkeys(one.latency, 1)
        both = one.latency.keys() & flops.keys() & parts.keys()
        return {m: one.latency[m] * flops[m] * parts[m] for m in both}

    kept = {one: frm(one) for one in platforms}
    complete = {one: {m: one.latency[m] for m in kept[one]} for one in platforms}
    ways, runtimes, alike = defaultdict(list), defaultdict(list), defaultdict(list)
    for a, b in itertools.permutations(platforms, 2):
        if a.device != b.device and (any_batch or a.batch == b.batch):
            ways[a.tier, b.tier].append((a, b))
        elif a.runtime < b.runtime and (a.device, a.batch, a.rest) == (b.device, b.batch, b.rest):
            runtimes[a.runtime, b.runtime].append((a, b))
    for key, pairs in ways.items():
        if _TIERS.index(key[0]) <= _TIERS.index(key[1]):
            # Rho has no direction, so inside a tier half of the pairs are enough.
            alike[key] = pairs if key[0] != key[1] else [p for p in pairs if id(p[0]) < id(p[1])]
    edge = [one for one in platforms if one.tier == "edge"]
    cases, _ = _against_flops(platforms, flops, kept.__getitem__)
    _, decisions = _against_flops(platforms, flops, lambda one: one.latency)
    accuracy = {n: one.accuracy for n, one in models.items() if one.accuracy is not None}
    frontiers = {key: _frontiers(pairs, accuracy) for key, pairs in ways.items()}
    found = {
        "latency_rho": _rows(alike, lambda pairs: _rhos(pairs, lambda one: one.latency)),
        f"frm_rho{end}": _rows(alike, lambda pairs: _rhos(pairs, kept.__getitem__)),
        f"runtimes_rho{end}": _rows(runtimes, lambda pairs: _rhos(pairs, kept.__getitem__)),
        "variation": [
            ({"tier": "edge", "measure": name}, _variation(edge, power, value))
            for name, power, value in (
                ("latency", 1, lambda one: one.latency), ("frm", 1 / 3, kept.__getitem__),
                ("latency_cube_root", 1 / 3, complete.__getitem__),
            )
        ],
        f"flops_cases{end}": [({}, cases)],
        "flops_decisions": [({}, decisions)],
        "error": [
            ({"family": family}, figure)
            for pairs in ways.values() for family, figure in _errors(pairs, models).items()
        ],
        "ratio_r2": _rows(ways, _ratio_r2),
    }  # fmt: skip
    for name in ("precision", "recall", "f1"):
        found[f"frontier_{name}"] = [
            ({"source": a, "target": b}, one[name]) for (a, b), one in frontiers.items()
        ]
    return found  # type: ignore[return-value]


def _rows(groups: Mapping[tuple[str, str], Pairs], make: Callable[[Pairs], Figure]) -> Rows:
    return [({"source": a, "target": b}, make(pairs)) for (a, b), pairs in groups.items()]


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean."""
    return float(np.mean(list(values)))


def _over_pairs(found: Found) -> Figure:
    """The mean inside each cluster, then over clusters, of (cluster, common models, value).

    If a pair has 9 common models, those with fewer are left out; otherwise those below 5.
    """
    least = 9 if max((n for _, n, _ in found), default=0) >= 9 else 5
    clusters, sizes = defaultdict(list), []
    for cluster, n, value in found:
        if n >= least and value is not None:
            clusters[cluster].append(value)
            sizes.append(n)
    return (mean(map(mean, clusters.values())), min(sizes), len(sizes), None) if sizes else NONE


def _places(values: Sequence[Fraction]) -> np.ndarray:
    """The values as whole numbers of equal order, so that ties are exact."""
    order = {value: at for at, value in enumerate(sorted(set(values)))}
    return np.array([order[value] for value in values])


def _rhos(pairs: Pairs, value: Values) -> Figure:
    found: Found = []
    for a, b in pairs:
        common, one = sorted(value(a).keys() & value(b).keys()), None
        if len(common) >= 5:
            x, y = (stats.rankdata(_places([value(side)[m] for m in common])) for side in (a, b))
            one = float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) and np.ptp(y) else None
        found.append((frozenset((a.device, b.device)), len(common), one))
    return _over_pairs(found)


def _orders_without_case(by_flops: Sequence[float], by_metric: Sequence[float]) -> int:
    """Permutations of the metric's ranks in which no model moves by 2 places or more."""
    ranks = sorted(by_metric)
    ways: Counter[int] = Counter({0: 1})  # bits: which ranks are given
    for one in sorted(by_flops):
        first, last = bisect.bisect_right(ranks, one - 2), bisect.bisect_left(ranks, one + 2)
        following: Counter[int] = Counter()
        for given, n in ways.items():
            if given & (1 << first) - 1 == (1 << first) - 1:
                for at in range(first, last):
                    if not given >> at & 1:
                        following[given | 1 << at] += n
        ways = following
    return sum(ways.values())


def _against_flops(
    platforms: Sequence[Platform], flops: Mapping[str, int], value: Values
) -> tuple[Figure, Figure]:
    """Share of platforms with a case, and share of pairs of models that FLOPs order wrongly."""
    cases, chances, models, wrong, n_pairs = [], [], set[str](), 0.0, 0
    for one in platforms:
        names = sorted(value(one).keys() & flops.keys())
        if (n := len(names)) >= 5:
            x = _places([Fraction(flops[m]) for m in names])
            y = _places([value(one)[m] for m in names])
            ranks = stats.rankdata(x), stats.rankdata(y)
            cases.append(bool((np.abs(ranks[0] - ranks[1]) >= 2).any()))
            orders = math.factorial(n)
            chances.append(float(Fraction(orders - _orders_without_case(*ranks), orders)))
            for at in range(n):
                same = np.sign(x[at + 1 :] - x[at]) * np.sign(y[at + 1 :] - y[at])
                wrong += float(((1 - same) / 2).sum())
            n_pairs += n * (n - 1) // 2
            models |= {*names}
    if not cases:
        return NONE, NONE
    counts = len(models), n_pairs
    return (mean(cases), *counts, mean(chances)), (wrong / n_pairs, *counts, 0.5)


def _variation(platforms: Sequence[Platform], power: float, value: Values) -> Figure:
    """Mean over models of the coefficient of variation of their ratio to the geometric mean."""
    sizes = sorted(len(value(one)) for one in platforms)
    least = 9 if len(sizes) > 1 and sizes[-2] >= 9 else 5
    enough = [one for one in platforms if len(value(one)) >= least]
    kept = [value(one) for one in (enough if len(enough) > 1 else platforms)]
    models = sorted(set.intersection(*map(set, kept))) if len(kept) > 1 else []
    if len(models) < 5:
        return NONE
    logs = np.array([[power * math.log(one[m]) for m in models] for one in kept])
    ratios = np.exp(logs - logs.mean(axis=1, keepdims=True))
    return mean(ratios.std(axis=0, ddof=1) / ratios.mean(axis=0)), len(models), None, None


def _frontier(costs: Mapping[str, Fraction], accuracy: Mapping[str, float]) -> set[str]:
    """Models that no other one beats: not slower, not less accurate, and better in one of these."""
    best: set[str] = set()
    high = -math.inf
    for _, group in itertools.groupby(sorted(costs, key=costs.__getitem__), costs.__getitem__):
        same = list(group)
        top = max(accuracy[m] for m in same)
        if top > high:
            best |= {m for m in same if accuracy[m] == top}
            high = top
    return best


def _frontiers(pairs: Pairs, accuracy: Mapping[str, float]) -> dict[str, Figure]:
    found: dict[str, Found] = {name: [] for name in ("precision", "recall", "f1", "chance")}
    for a, b in pairs:
        common = a.latency.keys() & b.latency.keys() & accuracy.keys()
        mine, theirs = (
            _frontier({m: one.latency[m] for m in common}, accuracy) for one in (a, b)
        )  # fmt: skip
        both, n = len(mine & theirs), len(common)
        shares = (
            (both, len(mine)), (both, len(theirs)), (2 * both, len(mine) + len(theirs)),
            (len(theirs), n),
        )  # fmt: skip
        for some, (part, whole) in zip(found.values(), shares, strict=True):
            some.append(((a.device, b.device), n, part / whole if n else None))
    means = {name: _over_pairs(some) for name, some in found.items()}
    return means | {"precision": (*means["precision"][:3], means["chance"][0])}


def _errors(pairs: Pairs, models: Mapping[str, Model]) -> dict[str, Figure]:
    """Error of prediction in percent by family: inside clusters, over clusters, over models."""
    of_cluster, of_model, families = defaultdict(list), defaultdict(list), defaultdict(list)
    n_pairs = 0
    for a, b in pairs:
        common = sorted(a.latency.keys() & b.latency.keys())
        if len(common) >= 5:
            x, y = (one - one.mean() for one in (_logs(a, common), _logs(b, common)))
            for m, error in zip(common, _left_out(x, y), strict=True):
                if math.isfinite(error):
                    of_cluster[m, a.device, b.device].append(error)
            n_pairs += 1
    for (m, *_), errors in of_cluster.items():
        of_model[m].append(mean(errors))
    for m, errors in of_model.items():
        families[models[m].family].append(mean(errors))
    return {name: (100 * mean(some), len(some), n_pairs, None) for name, some in families.items()}


def _left_out(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """|prediction / measured - 1| of each model by the line through the other ones."""
    n = x.size - 1
    sx, sy = x.sum() - x, y.sum() - y
    sxx, sxy = (x * x).sum() - x * x - sx * sx / n, (x * y).sum() - x * y - sx * sy / n
    slope = np.where(sxx > 1e-12, sxy / np.where(sxx > 1e-12, sxx, 1), np.nan)
    return np.abs(np.expm1(sy / n + slope * (x - sx / n) - y))


def _logs(one: Platform, names: Sequence[str]) -> np.ndarray:
    return np.array([math.log(one.latency[m]) for m in names])


def _ratio_r2(pairs: Pairs) -> Figure:
    """r2 of the ratio to a reference: the median over the references, then over pairs."""
    found: Found = []
    for a, b in pairs:
        common, median = sorted(a.latency.keys() & b.latency.keys()), None
        if (n := len(common)) >= 5:
            x, y = _logs(a, common), _logs(b, common)
            # Row: the reference; column: a scored model, which is any other one.
            missed = (((y - x)[None] - (y - x)[:, None]) ** 2).sum(axis=1)
            others = (y.sum() - y) / (n - 1)
            total = ((y[None] - others[:, None]) ** 2).sum(axis=1) - (y - others) ** 2
            is_known = total > 1e-12
            median = float(np.median(1 - missed[is_known] / total[is_known]))
        found.append(((a.device, b.device), n, median))
    return _over_pairs(found)
