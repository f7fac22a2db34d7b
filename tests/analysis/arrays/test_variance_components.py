"""Variance components, against projections written out, textbook formulas and statsmodels."""

import numpy as np
import pytest
from scipy import stats

from fleetrank.analysis.arrays.variance_components import (
    COMPONENTS,
    Component,
    Estimates,
    Observations,
    _equations,
    estimate,
)

TRUE = {
    Component.MODEL: 1.0, Component.DEVICE: 0.6, Component.MODEL_DEVICE: 0.2,
    Component.SESSION: 0.05, Component.MODEL_SESSION: 0.03, Component.REPEAT: 0.02,
}  # fmt: skip


def simulated(
    shape: tuple[int, int, int, int], seed: int, *, kept: float = 1.0, true=TRUE
) -> Observations:
    """Observations of (models, devices, sessions per device, repeats), a share of them kept."""
    rng = np.random.default_rng(seed)
    i, j, s, _ = (axis.ravel() for axis in np.indices(shape))
    _, n_devices, n_sessions, _ = shape
    session = j * n_sessions + s
    effects = (
        (Component.MODEL, i), (Component.DEVICE, j), (Component.MODEL_DEVICE, i * n_devices + j),
        (Component.SESSION, session),
        (Component.MODEL_SESSION, i * n_devices * n_sessions + session),
        (Component.REPEAT, np.arange(i.size)),
    )  # fmt: skip
    values = sum(
        np.sqrt(true[name]) * rng.standard_normal(code.max() + 1)[code] for name, code in effects
    )
    chosen = rng.random(i.size) < kept
    codes = (np.unique(code[chosen], return_inverse=True)[1] for code in (i, j, session))
    model, device, session = codes
    return Observations(values=values[chosen], model=model, device=device, session=session)


def found_of(data: Observations, seed: int = 0) -> Estimates:
    return estimate(data, np.random.default_rng(seed))


def columns(*codes: np.ndarray) -> np.ndarray:
    """Columns of zeros and ones for the levels of some factors, side by side."""
    return np.hstack([np.eye(code.max() + 1)[code] for code in codes])


def projection(*codes: np.ndarray) -> np.ndarray:
    base = columns(*codes)
    return base @ np.linalg.pinv(base)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_sums_and_coefficients_are_those_of_the_projections_written_out(seed: int) -> None:
    data = simulated((5, 4, 3, 3), seed, kept=0.5)
    a, b, c = data.model, data.device, data.session
    ab = np.unique(a * 100 + b, return_inverse=True)[1]
    ac = np.unique(a * 100 + c, return_inverse=True)[1]
    whole = np.eye(a.size)
    steps = (
        projection(a, b) - projection(b), projection(a, b) - projection(a),
        projection(ab) - projection(a, b), projection(ab, c) - projection(ab),
        projection(ac) - projection(ab, c), whole - projection(ac),
    )  # fmt: skip
    sums, degrees, coefficients = _equations(data)
    for k, step in enumerate(steps):
        assert sums[k] == pytest.approx(data.values @ step @ data.values, abs=1e-9)
        assert degrees[k] == round(np.trace(step))
        for m, level in enumerate((a, b, ab, c, ac, np.arange(a.size))):
            z = columns(level)
            assert coefficients[k, m] == pytest.approx(np.trace(z.T @ step @ z), abs=1e-8)


def test_a_table_without_a_link_between_its_halves_has_fewer_degrees_of_freedom() -> None:
    # Models 0, 1 on devices 0, 1 and models 2, 3 on devices 2, 3: no comparison across.
    model = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    device = np.array([0, 1, 0, 1, 2, 3, 2, 3])
    data = Observations(values=np.arange(8.0) ** 2, model=model, device=device, session=device)
    degrees = dict(zip(COMPONENTS, found_of(data).degrees, strict=True))
    assert degrees[Component.MODEL] == 2
    assert degrees[Component.DEVICE] == 2
    assert degrees[Component.MODEL_DEVICE] == 2


def test_dyestuff_has_the_published_components() -> None:
    """Six batches, five samples each: 1764.05 between batches and 2451.25 inside them.

    Source: Davies 1947, as in Searle, Casella and McCulloch 1992 and in lme4 (`Dyestuff`).
    """
    yields = np.array(
        [[1545, 1440, 1440, 1520, 1580], [1540, 1555, 1490, 1560, 1495],
         [1595, 1550, 1605, 1510, 1560], [1445, 1440, 1595, 1465, 1545],
         [1595, 1630, 1515, 1635, 1625], [1520, 1455, 1450, 1480, 1445]], dtype=float,
    )  # fmt: skip
    none = np.zeros(30, dtype=np.int64)
    batch = np.repeat(np.arange(6), 5)
    found = found_of(Observations(values=yields.ravel(), model=batch, device=none, session=none))
    raw = dict(zip(COMPONENTS, found.raw, strict=True))
    assert raw[Component.MODEL] == pytest.approx(1764.05)
    assert raw[Component.REPEAT] == pytest.approx(2451.25)
    assert np.isnan(
        [raw[c] for c in COMPONENTS if c not in (Component.MODEL, Component.REPEAT)]
    ).all()
    # The interval of a mean square is exact: degrees x mean square / chi-square.
    low, high = np.quantile(found.draws[:, -1], (0.025, 0.975))
    exact = 24 * 2451.25 / stats.chi2.ppf((0.975, 0.025), 24)
    assert (low, high) == pytest.approx(tuple(exact), rel=0.03)


def test_parts_and_operators_have_the_published_table_with_an_estimate_below_zero() -> None:
    """Ten parts (models), three operators (devices), three trials.

    Source: AIAG, Measurement Systems Analysis, 4th edition 2010: sums of squares 88.3619, 3.1673,
    0.3590 and 2.7589 with 9, 2, 18 and 60 degrees of freedom.
    """
    trials = np.array(
        [[[0.29, -0.56, 1.34, 0.47, -0.80, 0.02, 0.59, -0.31, 2.26, -1.36],
          [0.41, -0.68, 1.17, 0.50, -0.92, -0.11, 0.75, -0.20, 1.99, -1.25],
          [0.64, -0.58, 1.27, 0.64, -0.84, -0.21, 0.66, -0.17, 2.01, -1.31]],
         [[0.08, -0.47, 1.19, 0.01, -0.56, -0.20, 0.47, -0.63, 1.80, -1.68],
          [0.25, -1.22, 0.94, 1.03, -1.20, 0.22, 0.55, 0.08, 2.12, -1.62],
          [0.07, -0.68, 1.34, 0.20, -1.28, 0.06, 0.83, -0.34, 2.19, -1.50]],
         [[0.04, -1.38, 0.88, 0.14, -1.46, -0.29, 0.02, -0.46, 1.77, -1.49],
          [-0.11, -1.13, 1.09, 0.20, -1.07, -0.67, 0.01, -0.56, 1.45, -1.77],
          [-0.15, -0.96, 0.67, 0.11, -1.45, -0.49, 0.21, -0.49, 1.87, -2.16]]]
    )  # fmt: skip
    operator, _, part = (axis.ravel() for axis in np.indices(trials.shape))
    data = Observations(values=trials.ravel(), model=part, device=operator, session=operator)
    sums, degrees, _ = _equations(data)
    assert sums[[0, 1, 2, 5]] == pytest.approx([88.3619, 3.1673, 0.3590, 2.7589], abs=1e-4)
    assert degrees.tolist() == [9, 2, 18, 0, 0, 60]
    raw = found_of(data).raw
    expected = [1.088672, 0.052123, -0.008680, 0.045982]
    assert raw[[0, 1, 2, 5]] == pytest.approx(expected, abs=1e-5)


def test_balanced_components_are_those_of_reml() -> None:
    """Figures of statsmodels 0.15.0 `mixedlm` (REML, five `vc_formula` terms), 2026-11-22.

    With complete data and estimates above 0 both methods have one solution (Searle, Casella and
    McCulloch 1992, 6.7); its optimiser stops at three digits.
    """
    reml = [2.62087, 0.18552, 0.21473, 0.030934, 0.030401, 0.0197365]
    assert found_of(simulated((12, 6, 3, 3), 3)).raw == pytest.approx(reml, rel=0.003)


def test_unbalanced_components_are_near_those_of_reml() -> None:
    """As above, with 60 % of the processes; here the methods differ."""
    reml = [2.63417, 0.18268, 0.21035, 0.029075, 0.032424, 0.017879]
    assert found_of(simulated((12, 6, 3, 3), 3, kept=0.6)).raw == pytest.approx(reml, rel=0.15)


@pytest.mark.thorough
def test_estimates_are_unbiased_without_balance() -> None:
    found = np.array([found_of(simulated((8, 5, 2, 3), seed, kept=0.6)).raw for seed in range(300)])
    true = np.array([TRUE[component] for component in COMPONENTS])
    error = found.std(axis=0) / np.sqrt(300)
    assert (np.abs(found.mean(axis=0) - true) < 3.5 * error).all()


def test_what_cannot_be_separated_is_inside_the_next_component() -> None:
    data = simulated((20, 8, 1, 1), 1)
    raw = dict(zip(COMPONENTS, found_of(data).raw, strict=True))
    unknown = (Component.SESSION, Component.MODEL_SESSION, Component.REPEAT)
    assert np.isnan([raw[component] for component in unknown]).all()
    table = data.values.reshape(20, 8)
    rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    assert raw[Component.MODEL_DEVICE] == pytest.approx((rest**2).sum() / (19 * 7))
