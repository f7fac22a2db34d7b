"""What does a sweep save that stops when its question is decided?

`python benchmarks/until_decided.py [--sweeps N] [--stored RESULTS]`: simulated sweeps of 13 models
(sd of log latency 0.8, accuracy follows latency), 200 for each question and kind of noise; and the
cells of a store that have many repeats, whose processes are drawn without replacement in a new
order.

Printed beside the share of processes that were saved of the most: decisions taken, and sweeps with
any wrong decision (at most 5 %), for the stopping rule and for a *uniform* design with as many
processes in all: the same rounds for every model, looked at once, at the end, by Student's
intervals with the same shares of alpha.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import special

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.stopping_rule import StoppingRule, SweepQuestion
from fleetrank.analysis.until_decided import Decisions, decide

N_MODELS, MOST, FIRST, MARGIN = 13, 20, 3, 0.05
KINDS = ("2 %", "5 %", "unequal", "drift", "outliers", "20 % failures", "session")
Random = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Case:
    """One sweep: all values that it could measure, and the truth."""

    logs: Floats
    truth: Floats
    accuracy: Floats


def main() -> None:
    """Prints one line for each question and kind of noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--stored", type=Path)
    given = parser.parse_args()
    print("question, noise: saved of 20 rounds, decided, wrong; uniform: decided, wrong")
    for question in SweepQuestion:
        for kind in () if given.stored else KINDS:
            random = np.random.default_rng(0)
            report(question, kind, (made_up(random, kind) for _ in range(given.sweeps)))
    for platform, sample in stored(given.stored) if given.stored else ():
        random = np.random.default_rng(0)
        for question in SweepQuestion:
            report(question, platform, (redrawn(random, sample) for _ in range(given.sweeps)))


def report(question: SweepQuestion, kind: str, cases: Iterator[Case]) -> None:
    """Prints the figures of one question under one kind of noise."""
    rule = StoppingRule(question=question, margin=MARGIN, first=FIRST, most=MOST, budget_s=math.inf)
    rows = [figures(case, rule) for case in cases]
    saved, decided, wrong, uniform, uniform_wrong = np.array(rows, dtype=np.float64).mean(axis=0)
    print(
        f"{question:10} {kind:14} {saved:6.1%} {decided:6.1%} {wrong:6.1%}   "
        f"{uniform:6.1%} {uniform_wrong:6.1%}",
        flush=True,
    )


def figures(case: Case, rule: StoppingRule) -> tuple[float, float, bool, float, bool]:
    """Of one sweep: saved, decided and wrong, and decided and wrong of the uniform design."""
    logs = np.full(case.logs.shape, np.nan)
    logs[:, :FIRST] = case.logs[:, :FIRST]
    accuracy, n_used = case.accuracy.tolist(), len(case.accuracy) * FIRST
    found = decide(logs[:, :FIRST], accuracy, rule)
    for at in range(FIRST, MOST):
        if not found.open_models:
            break
        chosen = sorted(found.open_models)
        logs[chosen, at] = case.logs[chosen, at]
        n_used += len(chosen)
        found = decide(logs[:, : at + 1], accuracy, rule)
    n_rounds = max(2, round(n_used / len(accuracy)))
    fixed = looked_at_once(case.logs[:, :n_rounds], accuracy, rule)
    return (
        1 - n_used / case.logs.size,
        share_decided(found),
        is_wrong(found, case, rule),
        share_decided(fixed),
        is_wrong(fixed, case, rule),
    )


def looked_at_once(logs: Floats, accuracy: list[float], rule: StoppingRule) -> Decisions:
    """The decisions of a design whose rounds were fixed before."""
    return decide(logs, accuracy, replace(rule, first=logs.shape[1]), reach=students)


def students(variance: Floats, n: np.ndarray, degrees: Floats, alpha: float) -> Floats:
    """Half-width of Student's interval."""
    return special.stdtrit(degrees, 1 - alpha / 2) * np.sqrt(variance / n)


def share_decided(found: Decisions) -> float:
    """Share of the decisions that were taken."""
    _, n, n_decided = found.asked
    return n_decided / n


def is_wrong(found: Decisions, case: Case, rule: StoppingRule) -> bool:
    """Whether any decision contradicts the truth."""
    apart = case.truth[:, None] - case.truth[None, :]
    bound = rule.bound
    if rule.question is SweepQuestion.NOT_SLOWER:
        wrong = (found.slower[1:, 0] == 1) & (apart[1:, 0] <= bound)
        return bool((wrong | (found.equal[1:, 0] & (apart[1:, 0] >= bound))).any())
    wrong = (found.slower == 1) & (apart <= 0)
    return bool((wrong | (found.equal & (np.abs(apart) >= bound))).any())


def made_up(random: Random, kind: str) -> Case:
    """A sweep of made-up models; the noise of a process has a spread of 3 % unless `kind` says."""
    truth = random.normal(0, 0.8, N_MODELS)
    if random.random() < 0.5:  # equal models, and such inside the margin
        truth[1], truth[2] = truth[0], truth[3] + 0.02
    accuracy = truth + random.normal(0, 0.5, N_MODELS)
    spread = np.full(N_MODELS, {"2 %": 0.02, "5 %": 0.05}.get(kind, 0.03))
    if kind == "unequal":
        spread = random.choice([0.01, 0.03, 0.09], N_MODELS)
    logs = truth[:, None] + random.normal(0, 1, (N_MODELS, MOST)) * spread[:, None]
    if kind == "drift":
        logs += np.linspace(0, 0.3, MOST) + random.normal(0, 0.1, MOST)
    elif kind == "outliers":
        logs += (random.random(logs.shape) < 0.05) * random.uniform(0.1, 1.5, logs.shape)
    elif kind == "20 % failures":
        logs[random.random(logs.shape) < 0.2] = np.nan
    elif kind == "session":  # a state of the host that some models feel more than others
        logs += random.normal(0, 0.1, MOST) * random.uniform(0.5, 1.5, (N_MODELS, 1))
    return Case(logs=logs, truth=truth, accuracy=accuracy)


def stored(results: Path) -> Iterator[tuple[str, Case]]:
    """The platforms of the sweeps of a store that have at least five models, with all rounds.

    The truth is the mean of all rounds, so an order inside the noise counts as wrong in half of the
    cases.
    """
    from fleetrank.analysis.stored.load import last_attempts, load_measurements

    rows = last_attempts(load_measurements(results)).collect()
    for (sweep, platform), part in rows.group_by("sweep_id", "platform_key", maintain_order=True):
        table = part.pivot("repeat", index=["model", "accuracy_top1"], values="latency_p50_ns")
        logs = np.log(table.drop("model", "accuracy_top1").to_numpy().astype(np.float64))
        if logs.shape[0] >= 5 and logs.shape[1] >= MOST and np.isfinite(logs).all():
            accuracy = table["accuracy_top1"].to_numpy().astype(np.float64)
            name = f"{sweep} {platform.split('/')[1]}"
            yield name, Case(logs=logs, truth=np.nanmean(logs, axis=1), accuracy=accuracy)


def redrawn(random: Random, sample: Case) -> Case:
    """The rounds of a sweep in another order."""
    order = random.permutation(sample.logs.shape[1])
    return Case(logs=sample.logs[:, order], truth=sample.truth, accuracy=sample.accuracy)


if __name__ == "__main__":
    main()
