"""The figures that answers about pairs of models share, and the order of two on a platform."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.kept_order import (
    Ints,
    KeptCurve,
    learned_curve,
    some_pairs,
    usual_variance,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import LogRatios, Verdict, shown
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.figures import platform_labels
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.verdicts import doubts_of
from fleetrank.analysis.statistics.pairs.pair_evidence import PairEvidence, stored_figures
from fleetrank.analysis.statistics.pairs.pair_orders import SINGLE_MARGIN, Order, PairOrder
from fleetrank.analysis.statistics.pairs.pair_quantities import QUANTITIES
from fleetrank.analysis.stored.name_patterns import (
    ANY_PRECISION,
    fits_platform,
    has_precision,
    place_of,
    split_precision,
)
from fleetrank.analysis.stored.selection import MARGIN, margin_of
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.wording import did_you_mean

_COMPARED = TABLES["pairs"].settings["quantity"]
_Doubts = Mapping[tuple[int, int], str]


class PairFleet:
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
        self.doubts, self.unlike = _doubts(self.session, self.quantity.name)
        self.stored = stored_figures(self.session, self.quantity.column, self.unlike)
        self.figures = self.stored.newest
        self.stated, self.runs = self.figures.logs, self.stored.runs
        self.logs = self.stated.copy()
        self.is_unlike = np.zeros(self.logs.shape, dtype=np.bool_)
        for place in self.unlike:
            self.is_unlike[place] = True
        for row, column in (*self.doubts, *self.unlike):
            self.logs[row, column] = np.nan
        self.facts = panel.platforms.with_row_index("at")
        models = pl.coalesce("device_model", "device").cast(pl.String)
        self.devices: list[str] = panel.platforms.select(models).to_series().to_list()
        self.clusters: Ints = np.unique(self.devices, return_inverse=True)[1].astype(np.int64)
        self.labels = platform_labels(panel.platforms).names
        self.margin = margin_of(selection, MARGIN)
        self._curves: dict[tuple[bytes, int], KeptCurve | None] = {}
        self._ratios: dict[bytes, Floats] = {}

    def known(self, at: int) -> npt.NDArray[np.bool_]:
        """Models of which a platform has a figure that is not doubted, (n_models,)."""
        known: npt.NDArray[np.bool_] = np.isfinite(self.logs[:, at])
        return known | np.isfinite(self.runs[at].logs).any(axis=1) if at in self.runs else known

    def log_ratio(self, a: int, b: int, at: int) -> float:
        """Figure of B over that of A on a platform that measured both, as a logarithm."""
        found = self.stored.evidence(a, b, at)
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
        of = {name: self.panel.models[self.row_of(name)] for name in names if name}
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

    def faster_first(self, rows: tuple[int, int], here: int) -> tuple[int, int]:
        """The two rows, that of the faster model first."""
        a, b = rows
        return (b, a) if self.log_ratio(a, b, here) < 0 else (a, b)

    def row_of(self, name: str) -> int:
        """The row of the model that a name stands for; see `selection.place_of`."""
        models, (model, word) = self.panel.models, split_precision(name)
        is_precise = self.session.selection.precision == ANY_PRECISION
        if (row := place_of(name, models, is_precise=is_precise)) is not None:
            return row
        how = f"measure it with `fleetrank run {model}`, or import published figures"
        apart = [one for one in self.panel.notes if one.startswith(f"Left out: {name} on ")]
        others = sorted(one for one in models if word and split_precision(one)[0] == model)
        raise NoDataError(
            ". ".join([f"no platform has a comparable {self.quantity.name} of '{name}'", *apart]),
            f"it was measured as {', '.join(others)}; published floats are often fp16"
            if others
            else did_you_mean(name, models) + how,
        )

    def has_both(self, rows: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which platforms measured both models without doubt.

        `rows` is (..., 2), the answer (..., n_platforms).
        """
        pairs = np.asarray(rows)
        both = np.isfinite(self.logs[pairs]).all(axis=-2)
        for place, at in product(np.ndindex(pairs.shape[:-1]), self.runs):
            a, b = pairs[place].tolist()
            both[*place, at] = both[*place, at] or self.stored.evidence(a, b, at) is not None
        found: npt.NDArray[np.bool_] = both
        return found

    def common_here(self) -> int:
        """The column that counts as here for every pair: one with a pair, where there is any."""
        n_models = np.isfinite(self.logs).sum(axis=0)
        with_pair, with_any = (self.best_here(n_models >= least) for least in (2, 1))
        here = with_any if with_pair is None else with_pair
        if here is None:
            raise NoDataError(
                f"no chosen platform has a comparable {self.quantity.name}",
                "choose another one with `source=`",
            )
        return here

    def best_here(self, is_usable: npt.NDArray[np.bool_]) -> int | None:
        """Of the chosen platforms: measured rather than imported, then the one that began first.

        What is measured later does not move it. Of those that began together, the one with most
        models then, and with the fewest threads.
        """
        facts = self.panel.platforms.select("origin", "threads", "platform_key").rows()
        began = self.began

        def rank(at: int) -> tuple[object, ...]:
            origin, threads, key = facts[at]
            when, n_models = began[key]
            return origin != "measured", when, -n_models, threads or 0, key

        chosen: list[int] = self.sources().tolist()
        return min((at for at in chosen if is_usable[at]), key=rank, default=None)

    def measured_order(self, rows: tuple[int, int], at: int) -> PairOrder:
        """The two models on a platform that measured both."""
        found, sides = self.stored.ratios(*rows, np.array([at]))
        log, reach = float(found.estimates[0]), float(found.reach()[0])
        value_a, value_b = (math.exp(one.logs[0]) / self.quantity.per_unit for one in sides)
        best = self.stored.evidence(*rows, at)
        return replace(
            self.named_order(rows, Order(self._orders(found)[0]), at),
            ratio=math.exp(log),
            low=math.exp(log - reach) if math.isfinite(reach) else None,
            high=math.exp(log + reach) if math.isfinite(reach) else None,
            value_a=value_a,
            value_b=value_b,
            unit=self.quantity.unit,
            n_a=int(sides[0].n[0]),
            n_b=int(sides[1].n[0]),
            reason=None if best is None else self._beside(rows, at, best),
        )

    def _beside(self, rows: tuple[int, int], at: int, found: PairEvidence) -> str | None:
        """Newer figures of the models that are not used, or that two sessions are compared."""
        if not found.is_of_one_sweep:
            return (
                f"no sweep measured both: figures of {' and '.join(found.sweeps)} are compared, "
                "with the spread between sessions"
            )
        runs, said = self.runs[at], []
        for row, log in zip(rows, (found.log_a, found.log_b), strict=True):
            newest = runs.newest(row)
            if runs.sweeps[newest] != found.sweeps[0]:
                factor = math.exp(runs.stated[row, newest] - log)
                name = self.panel.models[row]
                said.append(f"{name} of {runs.sweeps[newest]}, {factor:.3g} times as long")
        if not said:
            return None
        return f"{found.sweeps[0]} measured both together; not used: {'; '.join(said)}"

    def orders_of(
        self, rows: tuple[int | Ints, int | Ints], columns: Ints
    ) -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
        """Log ratios where both were measured, their intervals, and orders, (n_columns,) each.

        `rows` are of both models: one for all columns, or one for each; so are the columns.
        The log ratio is above 0 here. Where the noise is not known, the interval is NaN, and the
        margin decides alone.
        """
        found, _ = self.stored.ratios(*rows, columns)
        reach = found.reach()
        return (
            found.estimates,
            found.estimates - reach,
            found.estimates + reach,
            self._orders(found),
        )

    def _orders(self, found: LogRatios) -> npt.NDArray[np.str_]:
        p_same = 2 * np.maximum(*found.p_margin(math.log1p(self.margin)))
        verdicts = shown(found, found.p_different(), p_same)
        is_bare = np.isnan(found.errors)
        least = math.log1p(max(self.margin, SINGLE_MARGIN))
        return np.select(
            [verdicts == Verdict.SAME,
             (verdicts == Verdict.SLOWER) | (is_bare & (found.estimates > least)),
             (verdicts == Verdict.FASTER) | (is_bare & (found.estimates < -least))],
            [Order.EQUAL, Order.KEPT, Order.REVERSED],
            Order.UNDECIDED,
        )  # fmt: skip

    def chosen_targets(self, here: int) -> list[int]:
        """The other platforms with the batch that is used here, of those that are selected."""
        is_alike = self.alike_platforms(here)
        return [int(at) for at in self.targets() if is_alike[at]]

    def why_unlike(self, rows: tuple[int, int], at: int) -> str | None:
        """Why a platform that states both figures shows an order that counts as undecided."""
        if not np.isfinite(self.stated[list(rows), at]).all():
            return None
        return next((self.unlike[row, at] for row in rows if (row, at) in self.unlike), None)

    def n_unlike(self, rows: Ints, columns: Ints) -> Ints:
        """How many of the platforms are as `why_unlike` says, for each of (n_pairs, 2) rows."""
        stated = np.isfinite(self.stated[:, columns])
        unlike = self.is_unlike[:, columns]
        is_so = stated[rows].all(axis=1) & unlike[rows].any(axis=1)
        return np.asarray(is_so.sum(axis=1), dtype=np.int64)

    def named_order(self, rows: tuple[int, int], order: Order, at: int | None) -> PairOrder:
        """A row without figures; `at` is `None` for a device without a stored row."""
        key = "" if at is None else self.panel.keys[at]
        return PairOrder(
            model_a=self.panel.models[rows[0]],
            model_b=self.panel.models[rows[1]],
            platform_key=key,
            label=self.labels.get(key, key),
            order=order,
            device="" if at is None else self.devices[at],
        )

    def alike_platforms(self, here: int) -> npt.NDArray[np.bool_]:
        """Other platforms with the batch that is used here, (n_platforms,)."""
        batches = self.panel.platforms["batch"].to_list()
        return np.array([at != here and one == batches[here] for at, one in enumerate(batches)])


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


def fleet_of(session: Session, names: Iterable[str] = ()) -> PairFleet:
    """Made once; by precision if a model is named with one, such as `resnet18:int8`."""
    stored = session.frame.select("model").unique().collect()["model"].to_list()
    precise = any(has_precision(name, stored) for name in names)
    is_any = precise or session.selection.precision == ANY_PRECISION
    return session.once(PairFleet, ANY_PRECISION if is_any else None)
