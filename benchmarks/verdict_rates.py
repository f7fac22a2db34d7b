"""How often are the verdicts of a comparison wrong, and how often do they decide?

Process medians of both sides are log-normal with the same noise; true ratios are 1 and more. For
each noise, number of repeats and ratio: the share of each verdict at a margin of 5 %, and how often
"not slower by the margin" is shown. Wrong are `slower` and `faster` at a ratio of 1, and the last
two columns at 1.05. `--advice` prints how often the advised number of repeats decides in a second,
independent comparison.

The last settings are two sessions, judged with what two sessions add, as other sweeps show it; as
one session where `others` is None.

`python benchmarks/verdict_rates.py --cases 4000`; one case takes about 0.5 ms.
"""

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import Limits, Verdict, between_sessions, figures_of
from fleetrank.analysis.comparison.verdict import Change, verdicts

NOISES = (0.01, 0.03, 0.1)
REPEATS = (3, 5, 10, 20)
RATIOS = (1.0, 1.02, 1.05, 1.1)
SPREADS, OTHERS = (0.01, 0.05, 0.1), (None, 0, 2, 5, 10)
MARGIN, ALPHA = 0.05, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One simulated situation: standard deviation of log medians, repeats a side, true ratio.

    Attributes:
        spread: standard deviation of the log of what a session does to all its processes.
        others: sessions of the store beside the two; `None` judges them as if they were one.
    """

    noise: float
    repeats: int
    ratio: float
    spread: float = 0.0
    others: int | None = None


def changes_of(setting: Setting, cases: int, rng: np.random.Generator) -> Iterator[Change]:
    """The judged change of each case, each judged alone."""
    limits = Limits(margin=MARGIN, alpha=ALPHA)
    for _ in range(cases):
        logs = rng.normal(0, setting.noise, (2 + (setting.others or 0), 1, setting.repeats))
        if setting.spread:
            logs += rng.normal(0, setting.spread, (len(logs), 1, 1))
        between = None
        if setting.others is not None:
            found = between_sessions(np.median(logs[2:], axis=2).T, are_others=True)
            between = np.array([found.reach]), np.array([found.degrees])
        yield _judged(logs[:2], setting.ratio, limits, between)[0]


def _judged(
    logs: Floats, ratio: float, limits: Limits, between: tuple[Floats, Floats] | None = None
) -> tuple[Change, ...]:
    """The cells of a platform in two sweeps, (2, n_cells, n_repeats)."""
    n_cells = logs.shape[1]
    samples = [*np.exp(logs[0]), *(ratio * np.exp(logs[1]))]
    found = figures_of(samples, [False] * 2 * n_cells, [""] * 2 * n_cells)
    return verdicts(found.at(slice(n_cells)), found.at(slice(n_cells, None)), limits, between)


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
    sessions = (
        Setting(noise=0.03, repeats=5, ratio=ratio, spread=spread, others=others)
        for spread, others, ratio in itertools.product(SPREADS, OTHERS, (1.0, 1.3))
    )
    columns = ("advised", "too_many", "decided") if chosen.advice else (*_SHOWN, "not_slower")
    print(
        f"{'noise':>5} {'n':>3} {'ratio':>5}", *(f"{name:>10}" for name in columns), "spread others"
    )
    for setting in (*settings, *sessions):
        values = (
            advice_rate(setting, chosen.cases)
            if chosen.advice
            else verdict_shares(setting, chosen.cases).values()
        )
        texts = (f"{v:10d}" if isinstance(v, int) else f"{v:10.3f}" for v in values)
        head = f"{setting.noise:5.2f} {setting.repeats:3d} {setting.ratio:5.2f}"
        print(head, *texts, f"{setting.spread:6.2f} {setting.others!s:>6}", flush=True)


if __name__ == "__main__":
    main()
