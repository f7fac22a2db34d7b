"""What is stored about two models on one platform: a sweep that measured both, or two sessions.

The ratio of figures of two sessions contains what the host did in each, so a sweep with both models
is better evidence, and rounds in which they took turns are the best. Only where no sweep has both,
figures of two sessions are divided, and their interval contains the spread between sessions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.interval import half_width, shrunk, squared_error
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import (
    ONE_SESSION,
    Figures,
    LogRatios,
    between_sessions,
    log_ratios,
)
from fleetrank.analysis.panel.panel import positions
from fleetrank.analysis.panel.repeats import alike_attempts
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.process_noise import noise_of
from fleetrank.analysis.stored.load import IS_SUSTAINED
from fleetrank.foundation.vocabulary import Design, Flag, Origin

Ints = npt.NDArray[np.int64]
_FAULTS = (Flag.THROTTLED, Flag.HOT, Flag.CLOCKS_DISAGREE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEvidence:
    """Two models on a platform. Logarithms of the column's unit.

    Attributes:
        log_a, log_b: their figures, from the same sweep or not.
        error, degrees: standard error of the log ratio, and its degrees of freedom; NaN and 0
            where nothing shows the spread.
        n_a, n_b: processes.
        sweeps: of A and of B.
        between: as of `LogRatios`.
    """

    log_a: float
    log_b: float
    error: float
    degrees: float
    n_a: int
    n_b: int
    sweeps: tuple[str, str]
    between: tuple[float, float]

    @property
    def is_of_one_sweep(self) -> bool:
        """Whether one sweep measured both."""
        return self.sweeps[0] == self.sweeps[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Every sweep of one platform, the oldest first.

    Attributes:
        sweeps: ids, (n_sweeps,).
        stated: figures, NaN where a sweep lacks the model, (n_models, n_sweeps).
        logs: of them those that are evidence, like `stated`.
        reach: half-width of the 95 % interval of a figure inside its sweep, like `logs`.
        degrees: of freedom of its error, like `logs`.
        n: processes, like `logs`.
        turns: the model took turns with others, like `logs`.
        between: half-width of what two sessions add to a log ratio, and its degrees of freedom.
    """

    sweeps: tuple[str, ...]
    stated: Floats
    logs: Floats
    reach: Floats
    degrees: Floats
    n: Ints
    turns: npt.NDArray[np.bool_]
    between: tuple[float, float]

    def newest(self, row: int) -> int:
        """The number of the newest sweep that measured a model."""
        return int(np.flatnonzero(np.isfinite(self.stated[row]))[-1])

    def has(self, rows: tuple[int, int]) -> bool:
        """Whether both models were measured, in one sweep or in two."""
        return bool(np.isfinite(self.logs[list(rows)]).any(axis=1).all())

    def of_pair(self, a: int, b: int) -> PairEvidence:
        """The best evidence: in turns, then in one sweep, the steadier, then the newer one.

        Otherwise the newest sweep of each.
        """
        reach = np.hypot(self.reach[a], self.reach[b])
        both = np.flatnonzero(np.isfinite(self.logs[a] + self.logs[b]))
        if both.size:
            wide = np.nan_to_num(reach, nan=np.inf)
            at = max(both.tolist(), key=lambda at: (self._in_turns(a, b, at), -wide[at], at))
            return self._evidence((a, at), (b, at))
        newest = [int(np.flatnonzero(np.isfinite(self.logs[row]))[-1]) for row in (a, b)]
        return self._evidence((a, newest[0]), (b, newest[1]))

    def _in_turns(self, a: int, b: int, at: int) -> bool:
        return bool(self.turns[a, at] and self.turns[b, at])

    def _evidence(self, a: tuple[int, int], b: tuple[int, int]) -> PairEvidence:
        parts, between = [(self.reach[one], self.degrees[one]) for one in (a, b)], ONE_SESSION
        if a[1] != b[1]:  # single processes of two sessions have the error of sessions alone
            parts, between = [part for part in parts if part[1] > 0], self.between
        *both, session = [
            (np.array([reach]), np.array([degrees])) for reach, degrees in (*parts, between)
        ]
        found = log_ratios(np.array([self.logs[b] - self.logs[a]]), *both, between=session)
        return PairEvidence(
            log_a=float(self.logs[a]),
            log_b=float(self.logs[b]),
            error=float(found.errors[0]),
            degrees=float(found.degrees[0]),
            n_a=int(self.n[a]),
            n_b=int(self.n[b]),
            sweeps=(self.sweeps[a[1]], self.sweeps[b[1]]),
            between=between,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFigures:
    """What a session holds of a quantity: the newest figures, and every sweep where there are more.

    Attributes:
        newest: (n_models, n_platforms).
        reach: half-width of the 95 % interval of each of them, likewise.
        runs: by column, of platforms that were measured in several sweeps.
    """

    newest: Figures
    reach: Floats
    runs: Mapping[int, Runs]

    def evidence(self, a: int, b: int, at: int) -> PairEvidence | None:
        """The best evidence of two models on a platform of several sweeps; `None` of another."""
        runs = self.runs.get(at)
        return runs.of_pair(a, b) if runs and runs.has((a, b)) else None

    def ratios(
        self, a: int | Ints, b: int | Ints, columns: Ints
    ) -> tuple[LogRatios, tuple[Figures, Figures]]:
        """Figures of B over those of A by the best evidence of each pair, and the figures.

        Args:
            a: rows; one for all columns, or one for each of them.
            b: likewise.
            columns: platforms; one may serve all rows.
        """
        rows = [np.asarray(one) for one in np.broadcast_arrays(a, b, columns)]
        sides = [self.newest.at((one, rows[2])) for one in rows[:2]]
        parts = [
            (self.reach[one, rows[2]], side.degrees)
            for one, side in zip(rows[:2], sides, strict=True)
        ]
        estimates = sides[1].logs - sides[0].logs
        reach, degrees = (np.full(estimates.shape, one) for one in ONE_SESSION)
        found = log_ratios(estimates, *parts, between=(reach, degrees))
        for place in np.flatnonzero(np.isin(rows[2], [*self.runs])).tolist():
            if (best := self.evidence(*(int(one[place]) for one in rows))) is not None:
                found.estimates[place] = best.log_b - best.log_a
                found.errors[place], found.degrees[place] = best.error, best.degrees
                reach[place], degrees[place] = best.between
                for side, log, n in zip(
                    sides, (best.log_a, best.log_b), (best.n_a, best.n_b), strict=True
                ):
                    side.logs[place], side.n[place] = log, n
        return found, (sides[0], sides[1])


def stored_figures(
    session: Session, column: str = "latency_p50_ns", unlike: Iterable[tuple[int, int]] = ()
) -> StoredFigures:
    """What a session holds of the quantity of a column of the stored rows.

    Args:
        session: the rows to use.
        column: of the quantity.
        unlike: rows and columns of the panel whose newest figure does not count as evidence.
    """
    newest = noise_of(session, column)
    return StoredFigures(newest=newest, reach=newest.reach, runs=_runs_of(session, column, unlike))


def _runs_of(
    session: Session, column: str, unlike: Iterable[tuple[int, int]]
) -> Mapping[int, Runs]:
    """By column of the panel, of platforms that this tool measured in several sweeps."""
    panel = session.panel
    value = pl.col(column).cast(pl.Float64)
    has_fault = pl.col("flags").list.eval(pl.element().is_in(_FAULTS)).list.any()
    is_sustained = IS_SUSTAINED.fill_null(value=False)
    rows = alike_attempts(session.comparable.cells, session.compared, ("runtime_version",))
    usable = (
        rows.filter(pl.col("origin") != Origin.IMPORTED, value > 0)
        .filter(pl.col("sweep_id").n_unique().over("platform_key") > 1)
        .filter(~has_fault.fill_null(value=False))
        .filter(~is_sustained | is_sustained.all().over("platform_key", "identity"))
        .with_columns(log=value.log())
    )
    sweeps = usable.group_by("platform_key", "identity", "sweep_id").agg(
        pl.len().alias("n"),
        pl.col("log").median().alias("median"),
        pl.col("log").mean().alias("mean"),
        pl.col("log").var().fill_null(0.0).alias("variance"),
        (pl.col("design") == Design.ROUNDS).fill_null(value=False).all().alias("turns"),
        pl.col("started_utc").min(),
    )
    found = {
        panel.keys.index(str(key)): _of_platform(panel.models, part)
        for (key,), part in sweeps.collect().group_by("platform_key")
    }
    for row, at in unlike:
        # A cell that mixes versions of a runtime is of no sweep here.
        if at in found and np.isfinite(found[at].stated[row]).any():
            found[at].logs[row, found[at].newest(row)] = np.nan
    return found


def _of_platform(models: tuple[str, ...], rows: pl.DataFrame) -> Runs:
    began = rows.group_by("sweep_id").agg(pl.col("started_utc").min())
    sweeps = tuple(began.sort("started_utc", "sweep_id")["sweep_id"])
    place = positions(models, rows["identity"]), positions(sweeps, rows["sweep_id"])
    shape = len(models), len(sweeps)
    logs, reach, freedom = np.full((3, *shape), np.nan)
    n, turns = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    n[place], turns[place] = rows["n"].to_numpy(), rows["turns"].to_numpy()
    logs[place] = rows.select(pl.when("turns").then("mean").otherwise("median")).to_series()
    degrees = np.maximum(n - 1, 0).astype(np.float64)
    squares = np.zeros(shape)
    squares[place] = rows["variance"].to_numpy() * degrees[place]
    is_any = np.ones(shape[0], dtype=np.bool_)
    for at in range(shape[1]):
        known = n[:, at] > 0
        variance, known_by = shrunk(squares[known, at], degrees[known, at], is_any[known])
        if not np.isfinite(variance).any():  # one process each: their spread in the other sweeps
            variance, known_by = (one[known] for one in _over_sweeps(squares, degrees))
        error = squared_error(variance, n[known, at], turns[known, at])
        reach[known, at], freedom[known, at] = half_width(error, known_by), known_by
    return Runs(
        sweeps=sweeps,
        stated=logs,
        logs=logs.copy(),
        reach=reach,
        degrees=freedom,
        n=n,
        turns=turns,
        between=between_sessions(logs)[:2],
    )


def _over_sweeps(squares: Floats, degrees: Floats) -> tuple[Floats, Floats]:
    total = squares.sum(axis=1), degrees.sum(axis=1)
    return shrunk(*total, np.ones(total[1].shape, dtype=np.bool_))
