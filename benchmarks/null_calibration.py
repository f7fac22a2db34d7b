"""How often does a null model reject although it holds, and how often where latency transfers?

Log latency on two platforms is a truth of FLOPs + an error:

- `line`: 0.8 x log FLOPs;
- `constant`: log(1 + FLOPs), a constant cost of each inference, which is the median model's own;
- `unequal`: as `line`, with three times the error below the median of FLOPs.

`own` is the share of the error's variance that both platforms have in common: at 0 only FLOPs
transfer. FRM's memory is FLOPs x a factor of each model. Printed for 8 to 100 models, three
standard deviations of the error, and both measures: the share of cases with p <= 0.05 for the plain
null (latencies permuted), and for the residual null with the p-value of the tables (mid-p), with
equal draws counted fully, and with a random decision on ties, which has no other error than that of
the permutations.

`python benchmarks/null_calibration.py --cases 2000`; one case takes 1 to 10 ms.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from fleetrank.analysis.arrays.frm import mid_p, null_p, null_units, residual_null_units
from fleetrank.analysis.arrays.ranking import Floats, average_ranks, products, unit_columns

DRAWS = 300
LEVEL = 0.05
COLUMNS = ("plain", "residual", "full", "random")
TRUTHS: Mapping[str, Callable[[Floats], tuple[Floats, Floats]]] = {
    "line": lambda log_flops: (0.8 * log_flops, np.ones_like(log_flops)),
    "constant": lambda log_flops: (np.log(1 + np.exp(log_flops)), np.ones_like(log_flops)),
    "unequal": lambda log_flops: (0.8 * log_flops, np.where(log_flops < 0, 3.0, 1.0)),
}
"""Log FLOPs to log latency without its error, and to the factor of the error."""


def p_values(
    n_models: int, truth: str, spread: float, own: float, rng: np.random.Generator,
    *, has_memory: bool,
) -> tuple[float, ...]:  # fmt: skip
    """P-values of one random case, in the order of `COLUMNS`."""
    log_flops = rng.normal(0, 1.2, n_models)
    common = np.sqrt(own) * rng.normal(size=(n_models, 1))
    alone = np.sqrt(1 - own) * rng.normal(size=(n_models, 2))
    known, factor = TRUTHS[truth](log_flops)
    logs = known[:, None] + spread * factor[:, None] * (common + alone)
    rest = np.zeros_like(logs)
    if has_memory:
        rest += (log_flops + rng.normal(0, 0.8, n_models))[:, None]
    rho = float(products(unit_columns(average_ranks(rest + logs)))[0, 1])
    arrays = np.exp(rest), np.exp(logs)
    plain = _rhos(null_units(*arrays, DRAWS, rng))
    residual = _rhos(residual_null_units(*arrays, np.exp(log_flops), DRAWS, rng))
    above, reached = (residual > rho + 1e-9).sum(), (residual >= rho - 1e-9).sum()
    random = above + rng.random() * (reached - above + 1)
    return (
        float(null_p(rho, plain)),
        float(mid_p(rho, residual)),
        float(null_p(rho, residual)),
        float(random / (DRAWS + 1)),
    )


def _rhos(units: Iterable[Floats]) -> Floats:
    rhos: Floats = np.concatenate([products(some)[:, 0, 1] for some in units])
    return rhos


def main() -> None:
    """Prints one line per setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--truths", nargs="*", choices=TRUTHS, default=list(TRUTHS))
    parser.add_argument("--own", type=float, nargs="*", default=(0.0, 0.6))
    chosen = parser.parse_args()
    print(f"{'truth':>8} {'own':>4} {'measure':>8} {'models':>6} {'error':>5}", end="")
    print(*(f"{c:>9}" for c in COLUMNS))
    settings = itertools.product(
        chosen.truths, chosen.own, (False, True), (8, 13, 30, 100), (0.1, 0.3, 0.8)
    )
    for truth, own, has_memory, n_models, spread in settings:
        rng = np.random.default_rng([n_models, round(10 * spread), has_memory, round(10 * own)])
        cases = [
            p_values(n_models, truth, spread, own, rng, has_memory=has_memory)
            for _ in range(chosen.cases)
        ]
        rates = (np.array(cases) <= LEVEL).mean(axis=0)
        name = "frm" if has_memory else "latency"
        print(f"{truth:>8} {own:4.1f} {name:>8} {n_models:6d} {spread:5.1f}", end="")
        print(*(f"{rate:9.3f}" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
