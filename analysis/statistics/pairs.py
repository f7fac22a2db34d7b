"""Is the model that is faster here also faster on the devices of users?

Two models, one platform where the question is asked, and every other platform: the order of the two
is kept there, reversed, equal or undecided. Where they were not measured, the order is kept with a
probability: see `arrays.kept_order`.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.kept_order import (
    FLOOR,
    MIN_DEVICES,
    MIN_MODELS,
    Ints,
    KeptCurve,
    closeness,
    expected,
    learned_curve,
    level_of,
    some_pairs,
    usual_variance,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.figures import platform_labels
from fleetrank.analysis.panel.session import Session, how_to_measure
from fleetrank.analysis.statistics.pair_answer import (
    QUANTITIES,
    SINGLE_MARGIN,
    Effort,
    Order,
    PairAnswer,
    PairOrder,
    pair_sentences,
    platform_shares,
    repeats_to_settle,
    with_users,
)
from fleetrank.analysis.statistics.pair_evidence import Evidence, runs_of
from fleetrank.analysis.statistics.process_noise import noise_of
from fleetrank.analysis.statistics.verdicts import doubts_of
from fleetrank.analysis.stored.selection import (
    ANY_PRECISION,
    ORDER_MARGIN,
    fits_platform,
    fits_text,
    has_precision,
    margin_of,
    place_of,
    setting,
    split_precision,
)
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.errors import count_of, did_you_mean
from fleetrank.foundation.vocabulary import Origin, Precision

_COMPARED = TABLES["pairs"].settings["quantity"]
MAX_LISTED = 5000
"""Pairs of models compared in one list: all pairs of a hundred models, in about half a second."""
_MOST_MODELS = 100
"""Models among which the page looks for a pair: 4,950 pairs."""
_MOST_SOURCES = 60
"""Platforms that a probability uses; more make it slower and hardly better."""
_SURE = 0.95
"""The probability for which the sentence on gaps names the gap."""


_Doubts = Mapping[tuple[int, int], str]


class Fleet:
    """The figures of a session that answers about pairs share.

    Runtime and precision of the selection choose the other platforms, not where the question is
    asked, nor what a probability is learned from. Doubtful figures have no part in that: `logs` are
    without them, `stated` are with them.
    """

    def __init__(self, session: Session, precision: str | None) -> None:
        self.selection = selection = session.selection
        if precision and selection.precision not in {None, ANY_PRECISION}:
            raise AnalysisError(
                "a model is named with a precision, and `precision=` is given", "give one of them"
            )
        self.session = session.asked(replace(selection, runtime=None, precision=precision))
        self.panel = panel = self.session.panel
        self.quantity = QUANTITIES[_COMPARED.chosen(selection)]
        values = getattr(panel, self.quantity.name)
        self.stated = np.log(np.where(values > 0, values, np.nan))
        self.doubts, self.unlike = _doubts(self.session, self.quantity.name)
        self.logs = self.stated.copy()
        for row, column in (*self.doubts, *self.unlike):
            self.logs[row, column] = np.nan
        self.facts = panel.platforms.with_row_index("at")
        models = pl.coalesce("device_model", "device").cast(pl.String)
        names = panel.platforms.select(models).to_series().to_list()
        self.clusters: Ints = np.unique(names, return_inverse=True)[1].astype(np.int64)
        self.labels = platform_labels(panel.platforms).names
        self.noise = noise_of(self.session, self.quantity.column)
        self.runs = {
            at: runs.without(row for row, where in self.unlike if where == at)
            for at, runs in runs_of(self.session, self.quantity.column).items()
        }
        self.margin = margin_of(selection, ORDER_MARGIN)
        self._curves: dict[tuple[bytes, int], KeptCurve | None] = {}
        self._ratios: dict[bytes, Floats] = {}

    def evidence(self, a: int, b: int, at: int) -> Evidence | None:
        """The best evidence of two models on a platform of several sweeps; `None` of another."""
        runs = self.runs.get(at)
        return runs.of_pair(a, b) if runs and runs.has((a, b)) else None

    def known(self, at: int) -> npt.NDArray[np.bool_]:
        """Models of which a platform has a figure that is not doubted, (n_models,)."""
        known: npt.NDArray[np.bool_] = np.isfinite(self.logs[:, at])
        return known | np.isfinite(self.runs[at].logs).any(axis=1) if at in self.runs else known

    def log_ratio(self, a: int, b: int, at: int) -> float:
        """Figure of B over that of A on a platform that measured both, as a logarithm."""
        found = self.evidence(a, b, at)
        if found is not None:
            return found.log_b - found.log_a
        return float(self.stated[b, at] - self.stated[a, at])

    def sources(self) -> Ints:
        """Columns of the platforms where the question may be asked."""
        return self._chosen(fits_platform(self.selection.source, self.selection.source_tier))

    def targets(self) -> Ints:
        """Columns of the other platforms that the selection names."""
        fits = fits_platform(self.selection.target, self.selection.target_tier)
        for name in ("runtime", "precision"):
            if (wanted := getattr(self.selection, name)) is not None:
                fits = fits & (pl.col(name) == wanted)
        return self._chosen(fits)

    def named(self, keys: Sequence[str]) -> Sequence[tuple[str | None, ...]]:
        """Each of these platforms that is stored: its key, its device and its device model."""
        chosen = self.facts.filter(pl.col("platform_key").is_in(keys))
        return chosen.select("platform_key", "device", "device_model").rows()

    def notes(self, *names: str) -> tuple[str, ...]:
        """Notes of every table, and which models the ends of longer names stand for."""
        of = {name: self.panel.models[row_of(self, name)] for name in names if name}
        said = (f"{name} is {one}." for name, one in of.items() if not one.startswith(name))
        return (*self.session.comparable.notes, *said)

    def _chosen(self, fits: pl.Expr) -> Ints:
        return self.facts.filter(fits)["at"].to_numpy().astype(np.int64)

    @cached_property
    def began(self) -> Mapping[str, tuple[str, int]]:
        """When the first sweep of each platform began, and how many models it measured there."""
        first = (
            self.session.attempts.filter(pl.col("status") == "ok")
            .with_columns(pl.col("started_utc").min().over("sweep_id").alias("began"))
            .group_by("platform_key", "sweep_id", "began")
            .agg(pl.col("model").n_unique())
            .sort("began", "sweep_id")
            .group_by("platform_key", maintain_order=True)
            .first()
            .collect()
        )
        rows = first.select("platform_key", "began", "model").iter_rows()
        return {key: (str(began), n) for key, began, n in rows}

    @cached_property
    def minutes(self) -> Mapping[tuple[str, str], float]:
        """What one process took, by model of the panel and platform key; not of published rows."""
        took = (pl.col("finished_utc") - pl.col("started_utc")).dt.total_microseconds() / 6e7
        names = self.session.comparable.cells.select("identity", "model", "platform_key")
        rows = (
            self.session.attempts.filter(pl.col("origin") != "imported", pl.col("status") == "ok")
            .group_by("model", "platform_key")
            .agg(took.median().alias("minutes"))
            .collect()
            .join(names, on=("model", "platform_key"))
        )
        known = rows.filter(pl.col("minutes") > 0).select("identity", "platform_key", "minutes")
        return {(model, key): minutes for model, key, minutes in known.iter_rows()}

    def usual(self, sources: Ints, weights: Floats) -> float:
        """The spread of these sources around the mean of a pair, over some pairs of all models."""
        key = sources.tobytes()
        if key not in self._ratios:
            rng = np.random.default_rng(self.selection.seed)
            known = self.logs[:, sources]
            first, second = some_pairs(np.flatnonzero(np.isfinite(known).any(axis=1)), rng)
            self._ratios[key] = known[second] - known[first]
        return usual_variance(self._ratios[key], weights)

    def curve(self, sources: Ints, level: int) -> KeptCurve | None:
        """How often an order that these platforms expect is kept; made once."""
        key = (sources.tobytes(), level)
        if key not in self._curves:
            rng = np.random.default_rng([self.selection.seed, level])
            self._curves[key] = learned_curve(self.logs, sources, self.clusters, level, rng)
        return self._curves[key]


def _doubts(session: Session, quantity: str) -> tuple[_Doubts, _Doubts]:
    """Reasons by row and column of the panel: with a cause of their own, and only unlike."""
    if quantity != "latency":
        return {}, {}
    row = {name: at for at, name in enumerate(session.panel.models)}
    column = {key: at for at, key in enumerate(session.panel.keys)}
    causes, unlike = (
        {(row[model], column[key]): said for (model, key), said in found.items()}
        for found in doubts_of(session)
    )
    return causes, unlike


def fleet_of(session: Session, names: Iterable[str] = ()) -> Fleet:
    """Made once; by precision if a model is named with one, such as `resnet18:int8`."""
    stored = session.frame.select("model").unique().collect()["model"].to_list()
    precise = any(has_precision(name, stored) for name in names)
    is_any = precise or session.selection.precision == ANY_PRECISION
    return session.once(Fleet, ANY_PRECISION if is_any else None)


def faster(
    session: Session,
    a: str,
    b: str,
    *,
    users: Mapping[str, float] | None = None,
    devices: Iterable[str] = (),
) -> PairAnswer:
    """Which of two models is the faster one here, and on the devices of users.

    The selection's source chooses where "here" is; its target, runtime and precision choose the
    other platforms. Its setting `quantity` compares memory or energy in place of latency.

    Args:
        session: the rows to use.
        a: name of a model, or `NAME:PRECISION` for one precision of it.
        b: name of another.
        users: share of users by device or device model, above 0; they are made to sum to 1.
        devices: names of known devices; one without any row counts as not measured.

    Raises:
        AnalysisError: both names are one model, or one has several precisions to choose from.
        NoDataError: a model has no row, or no chosen platform measured both.
    """
    fleet = fleet_of(session, (a, b))
    rows = row_of(fleet, a), row_of(fleet, b)
    if rows[0] == rows[1]:
        raise AnalysisError(f"{a} and {b} are one model", "name two models")
    answer = _answer(fleet, rows, _here(fleet, rows), users, devices)
    return replace(answer, notes=fleet.notes(a, b))


def _answer(
    fleet: Fleet,
    rows: tuple[int, int],
    here: int,
    users: Mapping[str, float] | None = None,
    devices: Iterable[str] = (),
) -> PairAnswer:
    rows = _faster_first(fleet, rows, here)
    sources = _sources(fleet, rows, here)
    targets = [*_targets(fleet, rows, here, sources)]
    found = platform_shares(
        fleet.named([fleet.panel.keys[here], *(one.platform_key for one in targets)]), users or {}
    )
    registered = [*devices]
    lacking = dict.fromkeys([*found.unknown, *_without_rows(fleet, registered)])
    if lacking:  # all of them are expected to be alike, and there may be thousands
        alike = _unmeasured(fleet, rows, None, sources)
        targets += [replace(alike, platform_key=name, label=name) for name in lacking]
    answer = PairAnswer(
        here=replace(measured_order(fleet, rows, here), order=Order.HERE),
        origin=fleet.facts["origin"][here],
        targets=tuple(targets),
        margin=fleet.margin,
        quantity=fleet.quantity.name,
        notes=fleet.notes(),
    )
    answer = _with_gap(fleet, answer, here)
    efforts = {one.platform_key: _effort(fleet, rows, here, one) for one in targets if one.is_open}
    is_own = pl.col("device").is_in(registered) | (pl.col("origin") == Origin.MEASURED)
    own = {*registered, *fleet.facts.filter(is_own)["platform_key"]}
    return with_users(answer, found, efforts, own, fleet.selection.seed)


def _without_rows(fleet: Fleet, devices: Iterable[str]) -> Iterator[str]:
    """Devices without any row, of those that the target's pattern fits."""
    known = set(fleet.facts["device"])
    pattern = fleet.selection.target or "*"
    yield from (name for name in devices if name not in known and fits_text(pattern, name))


def _effort(fleet: Fleet, rows: tuple[int, int], here: int, one: PairOrder) -> Effort:
    """What settles an open target: more processes of each model, and the minutes they take.

    Where both are missing, as many as here. A model that was not timed there takes as long as on
    the median platform.
    """
    keys = fleet.panel.keys
    at = keys.index(one.platform_key) if one.platform_key in keys else None
    n = int(fleet.noise.n[list(rows), here].max())
    if at is not None and one.order is Order.UNDECIDED and one.ratio is not None:
        n = (
            repeats_to_settle(one, float(fleet.noise.variance[list(rows), at].mean()), fleet.margin)
            or n
        )
    minutes = 0.0
    for model in (one.model_a, one.model_b):
        known = fleet.minutes.get((model, one.platform_key))
        others = [took for (name, _), took in fleet.minutes.items() if name == model]
        if known is None and not others:
            return Effort(n_processes=n, minutes=None)
        minutes += n * (float(np.median(others)) if known is None else known)
    return Effort(n_processes=n, minutes=minutes)


def _faster_first(fleet: Fleet, rows: tuple[int, int], here: int) -> tuple[int, int]:
    a, b = rows
    return (b, a) if fleet.log_ratio(a, b, here) < 0 else (a, b)


def row_of(fleet: Fleet, name: str) -> int:
    """The row of the model that a name stands for; see `selection.place_of`."""
    models, (model, word) = fleet.panel.models, split_precision(name)
    is_precise = fleet.session.selection.precision == ANY_PRECISION
    if (row := place_of(name, models, is_precise=is_precise)) is not None:
        return row
    how = f"measure it with `fleetrank run {model}`, or import published figures"
    apart = [one for one in fleet.panel.notes if one.startswith(f"Left out: {name} on ")]
    others = sorted(one for one in models if word and split_precision(one)[0] == model)
    raise NoDataError(
        ". ".join([f"no platform has a comparable {fleet.quantity.name} of '{name}'", *apart]),
        f"it was measured as {', '.join(others)}; published floats are often fp16"
        if others
        else did_you_mean(name, models) + how,
    )


def _has_both(fleet: Fleet, rows: tuple[int, int]) -> npt.NDArray[np.bool_]:
    both = np.asarray(np.isfinite(fleet.logs[list(rows)]).all(axis=0))
    for at in fleet.runs:
        both[at] = both[at] or fleet.evidence(*rows, at) is not None
    return both


def _here(fleet: Fleet, rows: tuple[int, int]) -> int:
    """The column where the question about two models is asked."""
    here = _best_here(fleet, _has_both(fleet, rows))
    if here is None:
        a, b = (fleet.panel.models[row] for row in rows)
        # Of models that were measured in one precision each.
        known = [fleet.facts.filter(np.isfinite(fleet.logs[row]))["precision"] for row in rows]
        ones = [one[0] for one in known if one.n_unique() == 1 and one[0] in [*Precision]]
        how = how_to_measure(a, b)
        if len({*ones}) > 1:
            precise = " ".join(f"{one}:{of}" for one, of in zip((a, b), ones, strict=True))
            how = f"files of unlike precision: `fleetrank faster {precise}`; {how}"
        raise NoDataError(f"no chosen platform measured both {a} and {b}", how)
    return here


def _common_here(fleet: Fleet) -> int:
    """The column that counts as here for every pair."""
    has_any: npt.NDArray[np.bool_] = np.isfinite(fleet.logs).sum(axis=0) > 0
    here = _best_here(fleet, has_any)
    if here is None:
        raise NoDataError(
            f"no chosen platform has a comparable {fleet.quantity.name}",
            "choose another one with `source=`",
        )
    return here


def _best_here(fleet: Fleet, is_usable: npt.NDArray[np.bool_]) -> int | None:
    """Of the chosen platforms: measured rather than imported, then the one that began first.

    What is measured later does not move it. Of those that began together, the one with most models
    then, and with the fewest threads.
    """
    facts = fleet.panel.platforms.select("origin", "threads", "platform_key").rows()
    began = fleet.began

    def rank(at: int) -> tuple[object, ...]:
        origin, threads, key = facts[at]
        when, n_models = began[key]
        return origin != "measured", when, -n_models, threads or 0, key

    chosen: list[int] = fleet.sources().tolist()
    return min((at for at in chosen if is_usable[at]), key=rank, default=None)


def measured_order(fleet: Fleet, rows: tuple[int, int], at: int) -> PairOrder:
    """The two models on a platform that measured both."""
    a, b = rows
    log, low, high, order = (one[0] for one in orders_of(fleet, rows, np.array([at])))
    is_known, found = math.isfinite(low), fleet.evidence(a, b, at)
    logs = (found.log_a, found.log_b) if found else fleet.stated[[a, b], at].tolist()
    n_a, n_b = (found.n_a, found.n_b) if found else fleet.noise.n[[a, b], at].tolist()
    value_a, value_b = (math.exp(one) / fleet.quantity.per_unit for one in logs)
    return replace(
        _named(fleet, rows, Order(order), at),
        ratio=math.exp(log),
        low=math.exp(low) if is_known else None,
        high=math.exp(high) if is_known else None,
        value_a=value_a,
        value_b=value_b,
        unit=fleet.quantity.unit,
        n_a=n_a,
        n_b=n_b,
        reason=None if found is None else _beside(fleet, rows, at, found),
    )


def _beside(fleet: Fleet, rows: tuple[int, int], at: int, found: Evidence) -> str | None:
    """Newer figures of the models that are not used, or that two sessions are compared."""
    if not found.is_of_one_sweep:
        return (
            f"no sweep measured both: figures of {' and '.join(found.sweeps)} are compared, with "
            "the spread between sessions"
        )
    runs, said = fleet.runs[at], []
    for row, log in zip(rows, (found.log_a, found.log_b), strict=True):
        newest = runs.newest(row)
        if runs.sweeps[newest] != found.sweeps[0]:
            factor = math.exp(runs.stated[row, newest] - log)
            name = fleet.panel.models[row]
            said.append(f"{name} of {runs.sweeps[newest]}, {factor:.3g} times as long")
    if not said:
        return None
    return f"{found.sweeps[0]} measured both together; not used: {'; '.join(said)}"


def orders_of(
    fleet: Fleet, rows: tuple[int, int | Ints], columns: Ints
) -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """Log ratios on platforms that measured both, their intervals, and orders, (n_columns,) each.

    With one column, `rows` may name several second models: then one of each for every model.
    The log ratio is above 0 here. Where the noise is not known, the interval is NaN, and the margin
    decides alone.
    """
    a, b = rows
    log = fleet.stated[b, columns] - fleet.stated[a, columns]
    reach = np.hypot(*(fleet.noise.reach[row, columns] for row in rows))
    if np.isin(columns, [*fleet.runs]).any():
        for place, (one, other, at) in enumerate(np.broadcast(a, b, columns)):
            if (found := fleet.evidence(int(one), int(other), int(at))) is not None:
                log[place], reach[place] = found.log_b - found.log_a, found.reach
    margin = math.log1p(fleet.margin)
    is_equal = (-margin < log - reach) & (log + reach < margin)
    least = np.where(np.isnan(reach), max(margin, math.log1p(SINGLE_MARGIN)), reach)
    order = np.select(
        [is_equal, log > least, log < -least], [Order.EQUAL, Order.KEPT, Order.REVERSED],
        Order.UNDECIDED,
    )  # fmt: skip
    return log, log - reach, log + reach, order


def _targets(fleet: Fleet, rows: tuple[int, int], here: int, sources: Ints) -> Iterator[PairOrder]:
    """The other platforms with both models, doubtful ones, and one of each other device.

    Of a device without any of them, that is the platform with most models. Each is there once.
    """
    alike = _chosen_targets(fleet, here)
    both = _has_both(fleet, rows)
    yield from (measured_order(fleet, rows, at) for at in alike if both[at])
    doubted = {at: said for at in alike if not both[at] and (said := _doubt(fleet, rows, at))}
    yield from (_doubted(fleet, rows, at, sources, said) for at, said in doubted.items())
    unlike = {at: said for at in alike if at not in doubted and (said := _unlike(fleet, rows, at))}
    yield from (_shown_unlike(fleet, rows, at, said) for at, said in unlike.items())
    seen = {
        fleet.clusters[at] for at in (here, *doubted, *unlike, *(at for at in alike if both[at]))
    }
    n_models = np.isfinite(fleet.logs).sum(axis=0)
    best: dict[int, int] = {}
    for at in sorted(alike, key=n_models.__getitem__):
        best[int(fleet.clusters[at])] = at
    for cluster, at in best.items():
        if cluster not in seen:
            yield _unmeasured(fleet, rows, at, sources)


def _chosen_targets(fleet: Fleet, here: int) -> list[int]:
    """The other platforms with the batch that is used here, of those that the target selects."""
    is_alike = _alike(fleet, here)
    return [int(at) for at in fleet.targets() if is_alike[at]]


def _doubt(fleet: Fleet, rows: tuple[int, int], at: int) -> str | None:
    return next((fleet.doubts[row, at] for row in rows if (row, at) in fleet.doubts), None)


def _unlike(fleet: Fleet, rows: tuple[int, int], at: int) -> str | None:
    """Why a platform that states both figures shows an order that counts as undecided."""
    if not np.isfinite(fleet.stated[list(rows), at]).all():
        return None
    return next((fleet.unlike[row, at] for row in rows if (row, at) in fleet.unlike), None)


def _shown_unlike(fleet: Fleet, rows: tuple[int, int], at: int, said: str) -> PairOrder:
    """A row with its figures, whose order is not believed before it is measured again."""
    one = measured_order(fleet, rows, at)
    is_kept = one.ratio is not None and one.ratio > 1
    order = Order.KEPT_UNLIKE if is_kept else Order.REVERSED_UNLIKE
    return replace(one, order=order, reason=f"unlike the others: {said}")


def _named(fleet: Fleet, rows: tuple[int, int], order: Order, at: int | None) -> PairOrder:
    """A row without figures; `at` is `None` for a device without a stored row."""
    key = "" if at is None else fleet.panel.keys[at]
    return PairOrder(
        model_a=fleet.panel.models[rows[0]],
        model_b=fleet.panel.models[rows[1]],
        platform_key=key,
        label=fleet.labels.get(key, key),
        order=order,
    )


def _doubted(fleet: Fleet, rows: tuple[int, int], at: int, sources: Ints, said: str) -> PairOrder:
    """A row with the stored ratio, and the probability that it has without the doubtful figure."""
    a, b = (float(fleet.panel.latency[row, at]) for row in rows)
    ratio = b / a if math.isfinite(a) and math.isfinite(b) and a > 0 else None
    row = _unmeasured(fleet, rows, at, sources)
    return replace(row, order=Order.DOUBTFUL, ratio=ratio, reason=said)


def _alike(fleet: Fleet, here: int) -> npt.NDArray[np.bool_]:
    """Other platforms with the batch that is used here, (n_platforms,)."""
    batches = fleet.panel.platforms["batch"].to_list()
    return np.array([at != here and one == batches[here] for at, one in enumerate(batches)])


def _sources(fleet: Fleet, rows: tuple[int, int], here: int) -> Ints:
    """Columns of the platforms with both models: here first, then at most some drawn others."""
    others = np.flatnonzero(_has_both(fleet, rows) & _alike(fleet, here)).tolist()
    if len(others) >= _MOST_SOURCES:
        rng = np.random.default_rng(fleet.selection.seed)
        others = sorted(rng.choice(others, _MOST_SOURCES - 1, replace=False).tolist())
    return np.array([here, *others], dtype=np.int64)


def _unmeasured(fleet: Fleet, rows: tuple[int, int], at: int | None, sources: Ints) -> PairOrder:
    """The two models on a platform that lacks one; `at` is `None` for a device without any row."""
    named = _named(fleet, rows, Order.NOT_MEASURED, at)
    known: Ints = np.array([], dtype=np.int64)
    others = sources
    if at is not None:
        known = np.flatnonzero(np.isfinite(fleet.logs[:, at]))
        others = sources[fleet.clusters[sources] != fleet.clusters[at]]
    if others.size == 0:
        return replace(named, reason="no other device measured both")
    curve = fleet.curve(sources, level_of(known.size))
    if curve is None:
        return replace(named, reason=f"fewer than {MIN_DEVICES} device models with many models")
    weights = closeness(fleet.logs, at, known, others, fleet.clusters)
    a, b = rows
    n_devices = np.unique(fleet.clusters[others]).size
    ratios = np.array([fleet.log_ratio(a, b, at) for at in others.tolist()])
    found = expected(ratios, weights, fleet.usual(others, weights))
    log, gap = float(found.ratio), float(found.gap)
    ends = [float(curve.shown(one)) for one in (curve.probability(gap), *curve.interval(gap))]
    said, low, high = ends if log >= 0 else (1 - ends[0], 1 - ends[2], 1 - ends[1])
    return replace(
        named,
        ratio=math.exp(log),
        probability=said,
        probability_low=low,
        probability_high=high,
        reason=f"expected from {count_of(n_devices, 'device model')}",
    )


def _with_gap(fleet: Fleet, answer: PairAnswer, here: int) -> PairAnswer:
    """Adds how often an order with this gap here is kept elsewhere, over all models.

    Without it where too few models are measured here: another platform has other gaps. A single
    source has no spread beside the floor.
    """
    curve = fleet.curve(np.array([here], dtype=np.int64), 0)
    n_models = int(np.isfinite(fleet.logs[:, here]).sum())
    if n_models < MIN_MODELS or curve is None or answer.here.ratio is None:
        return answer
    needed = curve.gap_for(_SURE)
    return replace(
        answer,
        gap_kept=float(curve.probability(math.log(answer.here.ratio) / FLOOR)),
        gap_needed=None if needed is None else math.exp(needed * FLOOR),
        curve=curve,
    )


# All pairs of one model, or all that are reversed somewhere, and the table of both.


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCount:
    """One pair of models over all platforms; model A is the faster one here.

    Attributes:
        kept, reversed, equal, undecided: other platforms that measured both, by their order.
        reversed_on: the platform where A is slowest beside B, if its order is reversed.
        worst_ratio: latency of B over that of A there.
    """

    model_a: str
    model_b: str
    ratio: float | None
    low: float | None
    high: float | None
    kept: int
    reversed: int
    equal: int
    undecided: int
    reversed_on: str | None
    worst_ratio: float | None


def pair_counts(session: Session, a: str | None = None) -> tuple[tuple[PairCount, ...], int]:
    """Each pair of a model, most often reversed first; without a model all that are reversed.

    Also gives the number of pairs that are left out, though some platform has them in the opposite
    order: without a model, `MAX_LISTED` pairs are compared.

    Raises:
        NoDataError: the model has no row, or no chosen platform measured two models.
    """
    fleet = fleet_of(session, [a or ""])
    row = None if a is None else row_of(fleet, a)
    here = _common_here(fleet)
    targets = np.array(_chosen_targets(fleet, here), dtype=np.int64)
    known = np.flatnonzero(fleet.known(here)).tolist()
    n_left_out = 0
    if row is None:
        pairs = [*combinations(known, 2)]
        if len(pairs) > MAX_LISTED:
            pairs, n_left_out = _most_opposite(fleet, pairs, here, targets)
    else:
        pairs = [(row, other) for other in known if other != row] if row in known else []
    counts = [_count(fleet, rows, here, targets) for rows in pairs]
    shown = [one for one in counts if a is not None or one.reversed]
    return tuple(sorted(shown, key=lambda one: (-one.reversed, one.ratio or 1.0))), n_left_out


def _most_opposite(
    fleet: Fleet, pairs: Sequence[tuple[int, int]], here: int, targets: Ints
) -> tuple[list[tuple[int, int]], int]:
    """The `MAX_LISTED` pairs whose order is the opposite most often, and how many others are so.

    Differences above the margin count first. A pair whose order is nowhere the opposite cannot be
    reversed.
    """
    columns = fleet.logs[:, [here, *targets.tolist()]]
    beyond, opposite = [], []
    for some in np.array_split(np.array(pairs), len(pairs) // MAX_LISTED + 1):
        logs = columns[some[:, 1]] - columns[some[:, 0]]
        others = np.where(logs[:, :1] < 0, -1, 1) * logs[:, 1:]
        beyond.append((others < -math.log1p(fleet.margin)).sum(axis=1))
        opposite.append((others < 0).sum(axis=1))
    n_opposite = np.concatenate(opposite)
    ranked = np.lexsort((-n_opposite, -np.concatenate(beyond)))
    left_out = n_opposite[ranked[MAX_LISTED:]] > 0
    return [pairs[at] for at in sorted(ranked[:MAX_LISTED].tolist())], int(left_out.sum())


def main_pair(session: Session) -> PairAnswer | None:
    """The pair that matters most: reversed on most other platforms, though clearly apart here.

    Of the fastest models here. `None` if no other platform measured two of them.
    """
    fleet = fleet_of(session)
    here = _common_here(fleet)
    elsewhere = fleet.logs[:, _alike(fleet, here)]
    has = np.isfinite(fleet.logs[:, here]) & np.isfinite(elsewhere).any(axis=1)
    rows = np.flatnonzero(has)[np.argsort(fleet.logs[has, here], kind="stable")][:_MOST_MODELS]
    first, second = np.triu_indices(rows.size, 1)
    gaps = fleet.logs[rows[second], here] - fleet.logs[rows[first], here]
    margin = math.log1p(fleet.margin)
    with np.errstate(invalid="ignore"):
        others = elsewhere[rows[second]] - elsewhere[rows[first]]
        n_reversed = (others < -margin).sum(axis=1)
    is_usable = np.isfinite(others).any(axis=1) & (gaps > margin)
    if not is_usable.any():
        return None
    best = np.lexsort((gaps, np.where(is_usable, n_reversed, -1)))[-1]
    return _answer(fleet, (int(rows[first[best]]), int(rows[second[best]])), here)


def _count(fleet: Fleet, rows: tuple[int, int], here: int, targets: Ints) -> PairCount:
    rows = _faster_first(fleet, rows, here)
    one, both = measured_order(fleet, rows, here), _has_both(fleet, rows)
    others = targets[both[targets]]
    logs, _, _, orders = orders_of(fleet, rows, others)
    number = Counter(orders.tolist())
    number[Order.UNDECIDED] += sum(_unlike(fleet, rows, at) is not None for at in targets.tolist())
    reversed_logs = np.where(orders == Order.REVERSED, logs, 0.0)
    worst = int(others[reversed_logs.argmin()]) if number[Order.REVERSED] else None
    return PairCount(
        model_a=one.model_a,
        model_b=one.model_b,
        ratio=one.ratio,
        low=one.low,
        high=one.high,
        kept=number[Order.KEPT],
        reversed=number[Order.REVERSED],
        equal=number[Order.EQUAL],
        undecided=number[Order.UNDECIDED],
        reversed_on=None if worst is None else fleet.labels[fleet.panel.keys[worst]],
        worst_ratio=None if worst is None else math.exp(reversed_logs.min()),
    )


def pairs_table(session: Session) -> Table:
    """Two models on every platform, or the pairs whose order is reversed somewhere.

    Settings: `model_a` and `model_b` name the models, `margin` the largest difference of no
    interest, `quantity` what is compared. `source` chooses where the question is asked; `target`,
    runtime and precision choose the other platforms.

    Raises:
        AnalysisError, NoDataError: as `faster` and `pair_counts`.
    """
    a, b = (setting(session.selection, name, "") for name in ("model_a", "model_b"))
    if a and b:
        return pair_table(faster(session, a, b))
    counts, n_left_out = pair_counts(session, a or b or None)
    cut = (
        f"Only {MAX_LISTED} pairs of models are compared, those with the opposite order on most "
        f"platforms; {count_of(n_left_out, 'further pair')} may be reversed somewhere: name one "
        "model, or choose some with `fleetrank report show pairs` with `model=NAME`."
    )
    fleet = fleet_of(session, (a, b))
    here = _common_here(fleet)
    is_own = fleet.facts["origin"][here] == Origin.MEASURED
    by = "" if fleet.quantity.name == "latency" else f", by {fleet.quantity.name}"
    return Table.of(
        PairCount,
        counts,
        title=f"Orders of {a or b} and others{by}" if a or b else f"Orders that are reversed{by}",
        notes=(
            *fleet.notes(a, b),
            f"Here: {fleet.labels[fleet.panel.keys[here]]}"
            + ("." if is_own else ", as nothing was measured here."),
            *((cut,) if n_left_out else ()),
        ),
        explanation=_explanation(fleet.margin),
    )


# How often orders are kept, by their gap, from one platform to another.

_EDGES = (1.0, 1.1, 1.25, 1.5, 2.0, 5.0, math.inf)
"""Of the gap at the source: below 1.1 repeats of one model differ as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """Pairs of models that two platforms measured; `None` where a bin has none.

    Attributes:
        below_1_1 to from_5: share of kept orders by the ratio at the source.
        gap_95: the smallest ratio at the source from which on 95 % are kept.
    """

    source: str
    target: str
    n_models: int
    kept: float
    below_1_1: float | None
    from_1_1: float | None
    from_1_25: float | None
    from_1_5: float | None
    from_2: float | None
    from_5: float | None
    gap_95: float | None


def gaps_table(session: Session) -> Table:
    """From each chosen source, without a choice from here, to each other platform."""
    fleet, chosen = fleet_of(session), session.selection
    is_chosen = (chosen.source, chosen.source_tier) != (None, None)
    sources = fleet.sources().tolist() if is_chosen else [_common_here(fleet)]
    pairs = [(one, other) for one in sources for other in _chosen_targets(fleet, one)]
    return Table.of(
        GapRow,
        (row for pair in pairs if (row := _gap_row(fleet, *pair)) is not None),
        title=f"Orders that are kept, by the gap in {fleet.quantity.name} at the source",
        notes=fleet.notes(),
        explanation=explained("pairs/gaps", {"min_models": MIN_MODELS}),
    )


def _gap_row(fleet: Fleet, source: int, target: int) -> GapRow | None:
    logs = fleet.logs[:, [source, target]]
    rows = np.flatnonzero(np.isfinite(logs).all(axis=1))
    if rows.size < MIN_MODELS:
        return None
    first, second = some_pairs(rows, np.random.default_rng(fleet.selection.seed))
    here, there = (logs[second] - logs[first]).T
    gaps, kept = np.exp(np.abs(here)), (1 + np.sign(here * there)) / 2
    bins = [kept[(low <= gaps) & (gaps < high)] for low, high in pairwise(_EDGES)]
    order = np.argsort(-gaps)
    share = np.cumsum(kept[order]) / np.arange(1, kept.size + 1)
    sure = np.flatnonzero(share >= _SURE)
    shares = (float(one.mean()) if one.size else None for one in bins)
    names = ("below_1_1", "from_1_1", "from_1_25", "from_1_5", "from_2", "from_5")
    return GapRow(
        source=fleet.labels[fleet.panel.keys[source]],
        target=fleet.labels[fleet.panel.keys[target]],
        n_models=rows.size,
        kept=float(kept.mean()),
        gap_95=float(gaps[order][sure[-1]]) if sure.size else None,
        **dict(zip(names, shares, strict=True)),
    )


def pair_table(answer: PairAnswer) -> Table:
    """The rows of an answer, here first, with its sentences as notes."""
    return Table.of(
        PairOrder,
        (answer.here, *answer.targets),
        title=QUANTITIES[answer.quantity].question.format(
            a=answer.here.model_a, b=answer.here.model_b
        ),
        notes=(*answer.notes, *pair_sentences(answer)),
        explanation=_explanation(answer.margin),
    )


def _explanation(margin: float) -> tuple[str, ...]:
    return explained("pairs/platforms", {"margin": margin, "min_devices": MIN_DEVICES})
