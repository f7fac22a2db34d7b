"""How often are the verdicts of a comparison wrong, and how often do they decide?

Process medians of both sides are log-normal with the same noise; true ratios are 1 and more. For
each noise, number of repeats and ratio: the share of each verdict at a margin of 5 %, and how often
"not slower by the margin" is shown. Wrong are `slower` and `faster` at a ratio of 1, and the last
two columns at 1.05. `--advice` prints how often the advised number of repeats decides in a second,
independent comparison.

`python benchmarks/verdict_rates.py --cases 4000`; one case takes about 0.5 ms.
"""

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import Limits, Verdict, figures_of
from fleetrank.analysis.comparison.verdict import Change, verdicts

NOISES = (0.01, 0.03, 0.1)
REPEATS = (3, 5, 10, 20)
RATIOS = (1.0, 1.02, 1.05, 1.1)
MARGIN, ALPHA = 0.05, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One simulated situation: standard deviation of log medians, repeats a side, true ratio."""

    noise: float
    repeats: int
    ratio: float


def changes_of(setting: Setting, cases: int, rng: np.random.Generator) -> Iterator[Change]:
    """The judged change of each case, each judged alone."""
    limits = Limits(margin=MARGIN, alpha=ALPHA)
    for _ in range(cases):
        logs = rng.normal(0, setting.noise, (2, 1, setting.repeats))
        yield _judged(logs, setting.ratio, limits)[0]


def _judged(logs: Floats, ratio: float, limits: Limits) -> tuple[Change, ...]:
    """The cells of a platform in two sweeps, (2, n_cells, n_repeats)."""
    n_cells = logs.shape[1]
    samples = [*np.exp(logs[0]), *(ratio * np.exp(logs[1]))]
    found = figures_of(samples, [False] * 2 * n_cells, [""] * 2 * n_cells)
    return verdicts(found.at(slice(n_cells)), found.at(slice(n_cells, None)), limits)


def verdict_shares(setting: Setting, cases: int, seed: int = 0) -> dict[str, float]:
    """Shares of the verdicts, and of "not slower by the margin" as `not_slower`."""
    rng = np.random.default_rng([seed, setting.repeats, round(1e4 * setting.noise)])
    found = list(changes_of(setting, cases, rng))
    counts = Counter(str(change.verdict) for change in found)
    counts["not_slower"] = sum(2 * (change.p_not_slower or 0) <= ALPHA for change in found)
    return {name: counts[name] / cases for name in (*_SHOWN, "not_slower")}


_SHOWN = (Verdict.SLOWER, Verdict.FASTER, Verdict.UNDECIDED, Verdict.SAME)


def advice_rate(setting: Setting, cases: int, seed: int = 0) -> tuple[int, int, float]:
    """Cases undecided with an advice, cases undecided without, and how often the advice decides."""
    rng = np.random.default_rng([seed, 1, setting.repeats, round(1e4 * setting.noise)])
    undecided = [
        change for change in changes_of(setting, cases, rng) if change.verdict is Verdict.UNDECIDED
    ]
    decided = n_advised = 0
    for change in undecided:
        if change.more_repeats is None:
            continue
        n_advised += 1
        total = setting.repeats + change.more_repeats
        again = Setting(noise=setting.noise, repeats=total, ratio=setting.ratio)
        (second,) = changes_of(again, 1, rng)
        decided += second.verdict is not Verdict.UNDECIDED
    rate = decided / n_advised if n_advised else float("nan")
    return n_advised, len(undecided) - n_advised, rate


def family_errors(setting: Setting, n_cells: int, families: int, seed: int = 0) -> dict[str, float]:
    """Shares of comparisons of many such cells with any `slower` or `faster`, and any `same`."""
    limits = Limits(margin=MARGIN, alpha=ALPHA)
    rng = np.random.default_rng([seed, 2, n_cells])
    changed = same = 0
    for _ in range(families):
        logs = rng.normal(0, setting.noise, (2, n_cells, setting.repeats))
        words = {change.verdict for change in _judged(logs, setting.ratio, limits)}
        changed += not words.isdisjoint({Verdict.SLOWER, Verdict.FASTER})
        same += Verdict.SAME in words
    return {"changed": changed / families, "same": same / families}


def main() -> None:
    """Prints one line per setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--advice", action="store_true")
    chosen = parser.parse_args()
    settings = (
        Setting(noise=noise, repeats=n, ratio=ratio)
        for noise, n, ratio in itertools.product(NOISES, REPEATS, RATIOS)
    )
    columns = ("advised", "too_many", "decided") if chosen.advice else (*_SHOWN, "not_slower")
    print(f"{'noise':>5} {'n':>3} {'ratio':>5}", *(f"{name:>10}" for name in columns))
    for setting in settings:
        values = (
            advice_rate(setting, chosen.cases)
            if chosen.advice
            else verdict_shares(setting, chosen.cases).values()
        )
        texts = (f"{v:10d}" if isinstance(v, int) else f"{v:10.3f}" for v in values)
        head = f"{setting.noise:5.2f} {setting.repeats:3d} {setting.ratio:5.2f}"
        print(head, *texts, flush=True)


if __name__ == "__main__":
    main()
