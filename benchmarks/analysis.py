"""How fast is the analysis, as ratios to what one would use instead, in one run?

Spearman's matrix with and without missing values, pairs with their nulls, bootstrap, Pareto, and
all tables over 10^4, 10^5 and 10^6 stored rows of 100 samples each, which are made up and live in a
temporary folder. `--rows 4,5` limits the powers of ten; seconds are of this machine, ratios carry
further. Rows beyond `--platforms` (200) x 100 models x 5 are further repeats: what a table over
directed pairs costs grows with the square of the platforms, not with the rows.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from made_up_rows import Shape, make_rows
from scipy import stats

from fleetrank.analysis.arrays.bootstrap import (
    percentile_interval,
    resample_counts,
    resampled_units,
)
from fleetrank.analysis.arrays.pareto import frontier
from fleetrank.analysis.arrays.ranking import products, spearman_common, spearman_matrix
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.agreement import pair_figures
from fleetrank.analysis.panel.draws import draws_for
from fleetrank.analysis.panel.panel import Measure
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import TABLES, session_table

MODELS, PLATFORMS, SAMPLED = 1000, 2000, 200
DRAWS, FLEET = 1000, 100
FEW_PLATFORMS = 50
REPEATS = 5
ROUNDS = 3
T = TypeVar("T")


def main() -> None:
    """Prints one line per comparison; `--tables FOLDER` is the process that makes all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="4,5,6")
    parser.add_argument("--platforms", type=int, default=200)
    parser.add_argument("--tables", type=Path)
    given = parser.parse_args()
    if given.tables is not None:
        print(json.dumps(all_tables(given.tables)))
        return
    rng = np.random.default_rng(0)
    missing(rng)
    complete(rng)
    agreements(rng)
    bootstrap(rng)
    pareto(rng)
    for power in given.rows.split(","):
        stored_rows(10 ** int(power), given.platforms)


def missing(rng: np.random.Generator) -> None:
    """Ranks inside each pair: all platforms, against pandas on some of them, pair for pair."""
    values = rng.normal(size=(MODELS, PLATFORMS))
    values[rng.random(values.shape) < 0.1] = np.nan
    ours_s, (rho, _) = timed(lambda: spearman_common(values))
    worst = 0.0
    for i, j in rng.integers(0, PLATFORMS, (200, 2)):
        both = np.isfinite(values[:, i]) & np.isfinite(values[:, j])
        found = stats.spearmanr(values[both, i], values[both, j]).statistic
        worst = max(worst, abs(float(found) - float(rho[i, j])))
    shape = f"Spearman, {MODELS} x {PLATFORMS}, 10 % missing"
    print(f"{shape}: largest difference from SciPy in 200 pairs {worst:.1e}")
    try:
        import pandas as pd
    except ModuleNotFoundError:
        print(f"{shape}: {ours_s:.1f} s; pandas is not installed, nothing to compare with")
        return
    some = pd.DataFrame(values[:, :SAMPLED])
    theirs_s, _ = timed(lambda: some.corr(method="spearman"))
    ratio = (theirs_s / pairs_of(SAMPLED)) / (ours_s / pairs_of(PLATFORMS))
    print(
        f"{shape}: {ratio:.1f} times faster than pandas corr per pair ({SAMPLED} platforms of it)"
    )


def complete(rng: np.random.Generator) -> None:
    """Without missing values, against ranking and the bare product."""
    values = rng.normal(size=(MODELS, PLATFORMS))
    ours, bare = [], []
    for _ in range(ROUNDS):
        ours.append(timed(lambda: spearman_matrix(values))[0])
        bare.append(timed(lambda: bare_product(values))[0])
    ratio = np.median(np.array(ours) / np.array(bare))
    print(f"Spearman, {MODELS} x {PLATFORMS}, complete: {ratio:.2f} times rank + bare product")


def bare_product(values: np.ndarray) -> np.ndarray:
    """What any Spearman matrix has to do at least."""
    ranks = stats.rankdata(values, axis=0)
    return ranks.T @ ranks


def agreements(rng: np.random.Generator) -> None:
    """All figures of FRM's pairs with their nulls, against SciPy ranking each draw once."""
    flops = np.exp(rng.normal(size=MODELS))
    rest, latency = (
        flops[:, None] * np.exp(rng.normal(size=(MODELS, FEW_PLATFORMS))) for _ in range(2)
    )
    measure = Measure(name="frm", rest=rest, latency=latency, flops=flops)
    pairs = list(itertools.combinations(range(FEW_PLATFORMS), 2))
    ours_s, _ = timed(lambda: pair_figures(measure, pairs, 0))
    theirs_s, _ = timed(lambda: stats.rankdata(latency, axis=0))
    draws = draws_for(pairs, MODELS)
    n_draws = draws.bootstrap + draws.null + draws.residual
    shape = f"Pairs with intervals and nulls, {MODELS} x {FEW_PLATFORMS}, {n_draws} draws"
    print(f"{shape}: {ours_s / (n_draws * theirs_s):.2f} times SciPy's ranks of every draw")


def bootstrap(rng: np.random.Generator) -> None:
    """Intervals of all pairs, against resampling and ranking anew, draw by draw."""
    values = rng.normal(size=(FLEET, FLEET))
    counts = resample_counts(FLEET, DRAWS, rng)

    def ours() -> object:
        parts = [products(units) for units in resampled_units(values, counts)]
        return percentile_interval(np.concatenate(parts))

    def plain() -> object:
        return [
            spearman_matrix(values[np.repeat(np.arange(FLEET), count)]) for count in counts[:100]
        ]

    ours_s, plain_s = timed(ours)[0], timed(plain)[0] * DRAWS / 100
    print(
        f"bootstrap, {DRAWS} draws, {FLEET} x {FLEET}: {ours_s:.1f} s, "
        f"{plain_s / ours_s:.2f} times faster than ranking each resample (without its quantiles)"
    )


def pareto(rng: np.random.Generator) -> None:
    """Two objectives, against sorting the points."""
    points = rng.random((10**6, 2))
    ours = min(timed(lambda: frontier(points))[0] for _ in range(ROUNDS))
    rows = min(timed(lambda: np.lexsort(points.T[::-1]))[0] for _ in range(ROUNDS))
    column = min(timed(lambda: np.argsort(points[:, 0], kind="stable"))[0] for _ in range(ROUNDS))
    print(
        f"Pareto, 10^6 points: {ours / rows:.2f} times lexsort, {ours / column:.2f} times argsort"
    )


def stored_rows(n_rows: int, most_platforms: int) -> None:
    """Seconds and peak memory of all tables over so many stored rows, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        n_platforms = min(most_platforms, n_rows // 100 // REPEATS)
        make_rows(Path(folder), Shape(n_rows=n_rows, n_platforms=n_platforms))
        command = [sys.executable, __file__, "--tables", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    slowest = sorted(found["seconds"].items(), key=lambda item: -item[1])[:6]
    listed = ", ".join(f"{name} {seconds:.1f}" for name, seconds in slowest)
    print(
        f"{n_rows:,} rows on {n_platforms} platforms to {len(found['seconds'])} tables: "
        f"{found['total_s']:.1f} s, {found['peak_bytes'] / 1e9:.2f} GB at most; slowest: {listed}"
    )
    for name, reason in found["refused"].items():
        print(f"  {name}: {reason}")


def all_tables(folder: Path) -> dict[str, object]:
    """Makes every table once from one scan, as the report page does."""
    seconds, refused = {}, {}
    started = time.perf_counter()
    session = Session(load_measurements(folder), Selection())
    for name in TABLES:
        try:
            seconds[name] = timed(lambda name=name: session_table(name, session))[0]
        except AnalysisError as error:
            refused[name] = error.message
    return {
        "seconds": seconds,
        "refused": refused,
        "total_s": time.perf_counter() - started,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds that `work` took, and what it returned."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def pairs_of(n: int) -> float:
    """Pairs that a symmetric matrix of `n` columns holds."""
    return n * (n + 1) / 2


if __name__ == "__main__":
    main()
