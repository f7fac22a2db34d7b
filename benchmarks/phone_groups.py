"""Would neighbours in time, or the canary, make a phone's ratios better? Simulated, in seconds.

`python benchmarks/phone_groups.py [CASES]`. A phone runs one model after the other: 13 models,
5 repeats, a run every 30 s, a canary every 10 runs. Its state varies by 10 % (an Ornstein-Uhlenbeck
process) and forgets itself within a time that is not known for real phones; a process varies by
3 %. Printed for several such times: the error of a ratio of two models, by the means of processes
(as phones are analysed), by groups of three runs in a row taken for rounds, and by means of
processes divided by the canary, interpolated in time.
"""

import sys

import numpy as np

from fleetrank.analysis.round_effects import effects_of
from fleetrank.analysis.rounds import Floats

MODELS, REPEATS, GROUP, CANARY_EVERY = 13, 5, 3, 10
SPACING_S, STATE, NOISE = 30.0, 0.10, 0.03
TIMES_S = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


def main() -> None:
    """Prints one line for each time."""
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'forgets in':>10}{'means':>8}{'groups':>8}{'canary':>8}")
    for time_s in TIMES_S:
        errors = [_errors(np.random.default_rng(seed), time_s) for seed in range(cases)]
        means, groups, canary = np.sqrt(2 * np.mean(np.square(errors), axis=(0, 2)))
        print(f"{time_s:8.0f} s{means:8.1%}{groups:8.1%}{canary:8.1%}", flush=True)


def _errors(rng: np.random.Generator, time_s: float) -> tuple[Floats, Floats, Floats]:
    """Errors of the models' effects by each way, (n_models,); their mean is 0."""
    n_runs = MODELS * REPEATS
    models = np.concatenate([rng.permutation(MODELS) for _ in range(REPEATS)])
    state = _state(rng, n_runs, time_s)
    logs = state + rng.normal(0.0, NOISE, n_runs)
    at = np.append(np.arange(0, n_runs, CANARY_EVERY), n_runs - 1)
    canary = np.interp(np.arange(n_runs), at, state[at] + rng.normal(0.0, NOISE, at.size))
    columns = np.arange(n_runs) // GROUP
    # A model that runs twice in a group has its second run in a group by itself.
    table = np.full((MODELS, columns[-1] + 1 + n_runs), np.nan)
    for run, (model, column) in enumerate(zip(models, columns, strict=True)):
        is_free = np.isnan(table[model, column])
        table[model, column if is_free else columns[-1] + 1 + run] = logs[run]
    found = (_means(models, logs), effects_of(table).rows, _means(models, logs - canary))
    means, groups, corrected = (one - one.mean() for one in found)
    return means, groups, corrected


def _state(rng: np.random.Generator, n_runs: int, time_s: float) -> Floats:
    kept = np.exp(-SPACING_S / time_s)
    state = np.empty(n_runs)
    value = rng.normal(0.0, STATE)
    for run in range(n_runs):
        state[run] = value
        value = kept * value + rng.normal(0.0, STATE * np.sqrt(1 - kept**2))
    return state


def _means(models: np.ndarray, logs: Floats) -> Floats:
    found: Floats = np.bincount(models, logs) / np.bincount(models)
    return found


if __name__ == "__main__":
    main()
