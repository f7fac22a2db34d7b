"""Variance components of log latency: model, device, their interaction, session and repeat.

value = mean + model + device + model x device + session + model x session + repeat. Models and
devices are crossed; a session belongs to one device; a repeat belongs to one model in one session.
All effects are random and independent. Cells may be missing, and counts of repeats may differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats, require_finite

Codes = npt.NDArray[np.int64]


class Component(StrEnum):
    """A source of variance."""

    MODEL = "model"
    DEVICE = "device"
    MODEL_DEVICE = "model x device"
    SESSION = "session"
    MODEL_SESSION = "model x session"
    REPEAT = "repeat"


COMPONENTS = tuple(Component)
"""The order of arrays (6,)."""
_DRAWS = 4000
"""The ends of a 95 % interval then move by about 2 % of its width from seed to seed."""
_EFFECTS = COMPONENTS[:-1]
_TOLERANCE = 1e-9
"""Eigenvalues below this share of the largest are 0: the counts are whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """One value per process, with its model, device and session as numbers from 0.

    Attributes:
        values: log latency, (n,).
        model, device, session: (n,); no number is left out, and a session is of one device.
    """

    values: Floats
    model: Codes
    device: Codes
    session: Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Estimated variances.

    Attributes:
        raw: (6,), possibly below 0; NaN where `degrees` is 0. The variance of such a component is
            then inside another one: see `estimate`.
        degrees: degrees of freedom of each sum of squares, (6,).
        draws: (draws, 6), not below 0; their percentiles are intervals. NaN as in `raw`.
    """

    raw: Floats
    degrees: Codes
    draws: Floats


def estimate(data: Observations, rng: np.random.Generator) -> Estimates:
    """Henderson's method III: sums of squares of nested fits are set equal to their expectations.

    Without a degree of freedom a component is part of the next that has one: one session per device
    is part of the device, model x session of model x device, one repeat of model x session.

    In a draw each mean square is divided by a chi-square over its degrees of freedom, and the
    equations are solved again. For one mean square of balanced normal data this is the exact
    interval; for other data it is an approximation.

    Source: Searle, Casella and McCulloch 1992, 5.5 (method III); Weerahandi 1993, and Burdick,
    Borror and Montgomery 2005 (generalised intervals).
    """
    require_finite(data.values)
    sums, degrees, coefficients = _equations(data)
    known = degrees > 0
    solve = np.linalg.inv(coefficients[np.ix_(known, known)])
    raw = np.full(len(COMPONENTS), np.nan)
    raw[known] = solve @ sums[known]
    ratio = degrees[known] / rng.chisquare(degrees[known], (_DRAWS, int(known.sum())))
    draws = np.full((_DRAWS, len(COMPONENTS)), np.nan)
    draws[:, known] = np.maximum((sums[known] * ratio) @ solve.T, 0.0)
    return Estimates(raw=raw, degrees=degrees, draws=draws)


def _equations(data: Observations) -> tuple[Floats, Codes, Floats]:
    """Sums of squares (6,), their degrees of freedom, and the variances' coefficients (6, 6)."""
    cell = _joined(data.model, data.session)
    levels = {
        Component.MODEL: data.model,
        Component.DEVICE: data.device,
        Component.MODEL_DEVICE: _joined(data.model, data.device),
        Component.SESSION: data.session,
        Component.MODEL_SESSION: cell,
    }
    # The sums are differences: values without their mean keep more digits.
    values = data.values - data.values.mean()
    model, device, both, _, finest = (_grouped(values, one, levels) for one in levels.values())
    additive = _additive(values, data, levels)
    with_sessions = _with_sessions(values, data)
    every = np.array([values @ values, *[float(values.size)] * len(COMPONENTS)])
    steps = np.array(
        [
            additive - device,
            additive - model,
            both - additive,
            with_sessions - both,
            finest - with_sessions,
            every - finest,
        ]
    )
    return steps[:, 0], np.rint(steps[:, -1]).astype(np.int64), steps[:, 1:]


def _joined(first: Codes, second: Codes) -> Codes:
    """A number for each pair of numbers that occurs."""
    _, joined = np.unique(first * (second.max() + 1) + second, return_inverse=True)
    return joined.reshape(-1)


def _grouped(values: Floats, group: Codes, levels: Mapping[Component, Codes]) -> Floats:
    """The space of the means of groups, as seven numbers.

    First the squared length of the projected data. Then for every effect the sum, over its levels,
    of the squared projection of the level's column of zeros and ones: the coefficient of its
    variance. Last, for the repeats, the dimension.
    """
    sizes = np.bincount(group)
    traces = []
    for level in levels.values():
        pairs, counts = np.unique(level * sizes.size + group, return_counts=True)
        traces.append(float((counts**2 / sizes[pairs % sizes.size]).sum()))
    squared = float((_sums(group, values) ** 2 / sizes).sum())
    return np.array([squared, *traces, float(sizes.size)])


def _additive(values: Floats, data: Observations, levels: Mapping[Component, Codes]) -> Floats:
    """The space `model + device`, as `_grouped` gives it."""
    n = float(values.size)
    counts = _table(data.model, data.device)
    space = two_way(counts)
    t_model = _sums(data.model, values)
    t_device = _sums(data.device, values)
    squared = float(space.squared(t_model[None], t_device[None])[0])
    sessions = _table(data.session, data.model), _table(data.session, data.device)
    cell = levels[Component.MODEL_SESSION]
    _, first, sizes = np.unique(cell, return_index=True, return_counts=True)
    squares = np.zeros_like(counts)
    np.add.at(squares, (data.model[first], data.device[first]), sizes.astype(np.float64) ** 2)
    traces = {
        Component.MODEL: n,
        Component.DEVICE: n,
        Component.MODEL_DEVICE: space.of_cells(counts**2),
        Component.SESSION: float(space.squared(*sessions).sum()),
        Component.MODEL_SESSION: space.of_cells(squares),
    }
    return np.array([squared, *(traces[one] for one in _EFFECTS), float(space.rank)])


def _with_sessions(values: Floats, data: Observations) -> Floats:
    """The space `model x device + session`: inside every device, `model + session`."""
    n = float(values.size)
    found = np.zeros(3)
    for device in range(int(data.device.max()) + 1):
        mine = data.device == device
        _, model = np.unique(data.model[mine], return_inverse=True)
        _, session = np.unique(data.session[mine], return_inverse=True)
        counts = _table(model, session)
        space = two_way(counts)
        t_model, t_session = _sums(model, values[mine]), _sums(session, values[mine])
        squared = float(space.squared(t_model[None], t_session[None])[0])
        found += squared, space.of_cells(counts**2), space.rank
    squared, trace, rank = found.tolist()
    return np.array([squared, *[n] * (len(_EFFECTS) - 1), trace, rank])


def _sums(group: Codes, values: Floats) -> Floats:
    """Sum of the values of each group."""
    sums: Floats = np.bincount(group, weights=values).astype(np.float64)
    return sums


def _table(rows: Codes, columns: Codes) -> Floats:
    """Counts of (row, column)."""
    table = np.zeros((int(rows.max()) + 1, int(columns.max()) + 1))
    np.add.at(table, (rows, columns), 1.0)
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoWay:
    """The space of all tables `row effect + column effect`, with observations in their cells.

    Attributes:
        shares: counts over the sum of their row, (n_rows, n_columns).
        rows: observations of each row, above 0, (n_rows,).
        inverse: generalised inverse of the column equations after the rows are eliminated.
        rank: dimension of the space.
    """

    shares: Floats
    rows: Floats
    inverse: Floats
    rank: int

    def squared(self, by_row: Floats, by_column: Floats) -> Floats:
        """Squared lengths of the projections of some vectors of observations.

        From the sum of each vector over each row (n_vectors, n_rows), and over each column
        (n_vectors, n_columns).
        """
        left = by_column - by_row @ self.shares
        inside: Floats = (by_row**2 / self.rows).sum(axis=1)
        total: Floats = inside + ((left @ self.inverse) * left).sum(axis=1)
        return total

    def of_cells(self, weights: Floats) -> float:
        """Sum of `squared` over vectors with the value 1 in one cell and 0 elsewhere.

        `weights` are the squared numbers of observations of these vectors, summed by cell,
        (n_rows, n_columns).
        """
        # With w = e_column - shares[row]: w' inverse w, written out for all cells at once.
        crossed = self.shares @ self.inverse
        own = (crossed * self.shares).sum(axis=1)
        leverage = 1 / self.rows[:, None] + np.diag(self.inverse) - 2 * crossed + own[:, None]
        return float((weights * leverage).sum())


def two_way(counts: Floats) -> TwoWay:
    """The space for a table of counts (n_rows, n_columns), in which no row is empty.

    Source: Searle, Casella and McCulloch 1992, 4.2 (absorbing one factor).
    """
    rows = counts.sum(axis=1)
    shares = counts / rows[:, None]
    reduced = np.diag(counts.sum(axis=0)) - counts.T @ shares
    values, vectors = np.linalg.eigh(reduced)
    kept = values > _TOLERANCE * max(1.0, float(values.max(initial=0.0)))
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return TwoWay(
        shares=shares, rows=rows, inverse=inverse, rank=rows.size + int(np.count_nonzero(kept))
    )


def coefficients(
    variances: Floats, n_sessions: float, n_repeats: float, n_devices: float
) -> Floats:
    """Coefficients of a platform and of a tier, (2, draws), from variances (draws, 6).

    The share of the true differences between models in the variance of their observed differences:
    (M + MD) / (M + MD + MS / s + R / (s r)) of a platform and
    M / (M + MD / d + MS / (d s) + R / (d s r))
    of a tier; M, MD, MS and R are the variances of model, model x device, model x session, repeat.
    Effects of device and session shift all models and do not change the order. A variance that is
    NaN counts as 0.

    Source: Cronbach, Gleser, Nanda and Rajaratnam 1972; Brennan 2001, 4.1 (relative error).
    """
    known = np.nan_to_num(variances).T
    by_name = dict(zip(COMPONENTS, known, strict=True))
    of_model, crossed = by_name[Component.MODEL], by_name[Component.MODEL_DEVICE]
    within = by_name[Component.MODEL_SESSION] + by_name[Component.REPEAT] / n_repeats
    error = within / n_sessions
    own = of_model + crossed
    pairs = ((own, own + error), (of_model, of_model + (crossed + error) / n_devices))
    return np.array([part / np.where(whole > 0, whole, np.nan) for part, whole in pairs])
