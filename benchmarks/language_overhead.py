"""Does fleetrank's loop of steps see what a bare loop does, and is a sequence the sum of its parts?

Per runtime, in one fresh process: fleetrank's loop (F) and two bare loops (A, B) make whole
sequences over one loaded session, in random order. A pair gives the ratio of the median steps F/A,
and A/B, which is what chance does to a ratio. Bare loops call the runtime's own functions.
ExecuTorch's bare loop copies the cache too, because it must. Wanted: 0.97 to 1.03.

Then `generate@P+N`, `prefill@P` and `decode@(P+N)` take turns in one process, in random order.
Printed is (TTFT + (N - 1) steps) / (prefill + (N - 1) decode), of medians; wanted: 0.95 to 1.05.
ONNX and PyTorch have one graph of free sizes for `generate`, and one of fixed sizes for each part.

Run on a quiet host: `python benchmarks/language_overhead.py --model stories15m`. Files are taken
from the artifact cache of this workspace, or made.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from fidelity import shown

from fleetrank.device_agents.contract.runtime import LoadedModel, SequenceModel
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.registry import HOST_CPU, create_agent
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.runner import create_runner, default_backend
from fleetrank.device_agents.timed_sequences import sequence_policy, time_sequences
from fleetrank.device_agents.worker.generation import SequenceRuns, sequence_runs
from fleetrank.foundation.vocabulary import FORMAT_OF_RUNTIME, Runtime
from fleetrank.foundation.workload import Workload, WorkloadKind, step_of
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import Artifact, ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.export import build_artifacts
from fleetrank.orchestrator.one_export import ExportTools

PAIRS = 20
SEQUENCES = 6
"""In each block of a pair."""

SHOWN = {
    "fleetrank / bare": "F/A",
    "bare / bare": "A/B",
    "sequence / parts": "S/P",
    "TTFT / prefill": "T/P",
    "step / decode": "S/D",
}
"""Titles of the ratios."""

Steps = Callable[[], list[int]]
"""Makes one sequence and returns the times of its steps in nanoseconds."""


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="stories260k")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--generated", type=int, default=32)
    parser.add_argument("--runtimes", nargs="+", default=list(Runtime))
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    workload = f"generate@{asked.prompt}+{asked.generated}"
    if asked.cell:
        print(json.dumps(ratios_of(asked.model, Runtime(asked.cell), Workload.parse(workload))))
        return
    print(f"{asked.model}, {workload}, quartiles over {PAIRS} blocks")
    print(f"{'runtime':11}", *(f"{title:20}" for title in SHOWN))
    for runtime in asked.runtimes:
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--cell", runtime],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        ratios = json.loads(done.stdout.splitlines()[-1])
        print(f"{runtime:11}", *(shown(ratios[name]) for name in SHOWN.values()), flush=True)


def task_of(model: str, runtime: Runtime, text: str) -> MeasureTask:
    """The task of a worker, with one thread; exports the file if it is missing."""
    workload, card = Workload.parse(text), resolve(load_language_zoo()[model])
    execution = Execution(
        runtime=runtime,
        backend=default_backend(runtime),
        inputs=card.sized_inputs(workload.axes, 1),
        workload=workload,
    )
    request = ExportRequest(
        model=card, weights=Weights(), format=FORMAT_OF_RUNTIME[runtime], workload=workload
    )
    artifact = artifact_of(request)
    return MeasureTask(
        task_id=f"{runtime}/{text}",
        artifact_path=artifact.path,
        artifact_sha256=artifact.sha256,
        execution=execution,
        is_trusted=True,
        policy=MeasurePolicy(energy_s=0.0),
    )


def artifact_of(request: ExportRequest) -> Artifact:
    """The file from this workspace's cache, or a new one."""
    tools = ExportTools(
        cache=ArtifactCache(Path("artifacts").absolute()),
        infer=create_agent(HOST_CPU, {}).infer,
        emit=lambda _event: None,
        switch=StopSwitch(),
    )
    exports = build_artifacts([request], (), tools)
    if request in exports.failures:
        raise SystemExit(exports.failures[request].message)
    return exports.artifacts[request]


def ratios_of(model: str, runtime: Runtime, whole: Workload) -> dict[str, list[float]]:
    """The ratios of `SHOWN`, one of each for every block."""
    runs = loaded(model, runtime, whole)[1]
    if runs is None:
        raise SystemExit("no sequence")
    return loop_ratios(runs, BARE[runtime](runs.model)) | part_ratios(model, runtime, whole, runs)


def loaded(
    model: str, runtime: Runtime, workload: Workload
) -> tuple[LoadedModel, SequenceRuns | None]:
    """A model with its inputs in the runtime's memory, and its sequences if it makes some."""
    task = task_of(model, runtime, str(workload))
    found = create_runner(runtime).load(task.artifact_path, task.execution)
    sequences = sequence_runs(found, task)
    if sequences is None:
        found.set_inputs(make_inputs(found.inputs, seed=0))
    return found, sequences


def loop_ratios(runs: SequenceRuns, bare: Steps) -> dict[str, list[float]]:
    """Ratios of the median steps of blocks, F/A and A/B, over one session."""
    loops: dict[str, Steps] = {"F": lambda: fleetrank_steps(runs), "A": bare, "B": bare}
    ratios: dict[str, list[float]] = {"F/A": [], "A/B": []}
    for medians in blocks({name: lambda one=one: block_median(one) for name, one in loops.items()}):
        ratios["F/A"].append(medians["F"] / medians["A"])
        ratios["A/B"].append(medians["A"] / medians["B"])
    return ratios


def part_ratios(
    model: str, runtime: Runtime, whole: Workload, runs: SequenceRuns
) -> dict[str, list[float]]:
    """Ratios of a sequence to its parts, of whole sequences, prompts and steps."""
    steps = runs.steps
    prompt, _ = loaded(model, runtime, Workload(kind=WorkloadKind.PREFILL, length=whole.length))
    decode, _ = loaded(model, runtime, step_of(whole))
    of_runs = {
        "sequences": lambda: sequence_medians(runs),
        "prompt": lambda: statistics.median(timed(prompt.run, [prompt.run] * SEQUENCES)),
        "decode": lambda: statistics.median(timed(decode.run, [decode.run] * SEQUENCES * steps)),
    }
    ratios: dict[str, list[float]] = {"S/P": [], "T/P": [], "S/D": []}
    for medians in blocks(of_runs):
        (ttft, step), prefill, alone = (medians[name] for name in of_runs)
        ratios["S/P"].append((ttft + steps * step) / (prefill + steps * alone))
        ratios["T/P"].append(ttft / prefill)
        ratios["S/D"].append(step / alone)
    return ratios


def blocks(measures: Mapping[str, Callable[[], Any]]) -> Iterator[dict[str, Any]]:
    """What each function returns, in blocks of random order; the first block warms up."""
    rng, names = Random(0), list(measures)
    for number in range(PAIRS + 1):
        rng.shuffle(names)
        found = {name: measures[name]() for name in names}
        if number:
            yield found


def sequence_medians(runs: SequenceRuns) -> tuple[float, float]:
    """Median time to the first token, and median step, of several sequences."""
    policy = sequence_policy(MeasurePolicy(max_samples=runs.steps * SEQUENCES), runs.steps)
    found = time_sequences(runs.model, runs.steps, time.perf_counter_ns, policy)
    return statistics.median(found.prompts_ns), statistics.median(found.steps_ns)


def block_median(loop: Steps) -> float:
    """Median step of several sequences."""
    return statistics.median(ns for _ in range(SEQUENCES) for ns in loop())


def fleetrank_steps(runs: SequenceRuns) -> list[int]:
    """One sequence as a worker times it."""
    policy = sequence_policy(MeasurePolicy(max_samples=runs.steps), runs.steps)
    return list(time_sequences(runs.model, runs.steps, time.perf_counter_ns, policy).steps_ns)


def timed(run: Callable[[], None], calls: list[Callable[[], None]]) -> list[int]:
    """A prompt, then each call between two readings of the clock."""
    run()
    times = []
    for call in calls:
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return times


def bare_onnx(model: SequenceModel) -> Steps:
    """The session's own call on each binding."""
    run, bindings = model._session.run_with_iobinding, model._steps
    return lambda: timed(model.run, [lambda one=one: run(one, None) for one in bindings])


def bare_tflite(model: SequenceModel) -> Steps:
    """The library's own call on each list of buffers."""
    run, calls = model._model.run_by_index, model._steps
    return lambda: timed(model.run, [lambda one=one: run(*one) for one in calls])


def bare_torch(model: SequenceModel) -> Steps:
    """The module on token, position and the caches it returned last."""
    import torch

    module = model._module

    def sequence() -> list[int]:
        model.run()
        caches, times = list(model.states), []
        model.states, model._output = [], None
        for tokens, positions, *_ in model._steps:
            start = time.perf_counter_ns()
            with torch.inference_mode():
                made = module(tokens, positions, *caches)
                _, *caches = made.values() if isinstance(made, dict) else made
            times.append(time.perf_counter_ns() - start)
        model.states = list(caches)
        return times

    return sequence


def bare_executorch(model: SequenceModel) -> Steps:
    """The method on token, position and copies of the caches it returned last."""
    method = model._step_method

    def sequence() -> list[int]:
        model.run()
        caches, times = list(model._prompt[1][2:]), []
        for _, (tokens, positions, *_) in model._steps:
            start = time.perf_counter_ns()
            method.set_inputs((tokens, positions, *caches))
            method.execute()
            for cache, new in zip(caches, method.get_outputs(clone_outputs=False)[1:], strict=True):
                cache.copy_(new)
            times.append(time.perf_counter_ns() - start)
        return times

    return sequence


BARE: dict[Runtime, Callable[[SequenceModel], Steps]] = {
    Runtime.ONNX: bare_onnx,
    Runtime.TORCH: bare_torch,
    Runtime.TFLITE: bare_tflite,
    Runtime.EXECUTORCH: bare_executorch,
}


if __name__ == "__main__":
    main()
