"""Is LiteRT's `CompiledModel`, which binds a decoder's cache, faster than its `Interpreter`?

Both run the same file in one process with one thread, in blocks of random order: `CompiledModel` as
the runner calls it (C), `Interpreter.invoke` on inputs that stay (I), and `Interpreter` with each
cache copied out and in again, as a step needs it (S). Printed are ratios of block medians with the
interval of their median; below 1 `CompiledModel` is faster. C/C is what chance does.

`python benchmarks/litert_apis.py --model stories15m --workload decode@128`, on a quiet host. Files
are taken from the artifact cache of this workspace, or made.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from random import Random

import numpy as np
from fidelity import shown
from language_overhead import task_of

from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.runner import create_runner
from fleetrank.foundation.inputs import plain_input_name
from fleetrank.foundation.vocabulary import Runtime

PAIRS = 20
CALLS = 10
"""In each block."""

Call = Callable[[], None]


def main() -> None:
    """Prints the ratios of each workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="stories15m")
    parser.add_argument("--workload", nargs="+", default=["prefill@128", "decode@128"])
    asked = parser.parse_args()
    for workload in asked.workload:
        calls = calls_of(task_of(asked.model, Runtime.TFLITE, workload))
        for name, ratios in paired(calls).items():
            print(f"{asked.model} {workload:12} {name:4} {shown(ratios)}", flush=True)


def calls_of(task: MeasureTask) -> dict[str, Call]:
    """One inference each way, on equal inputs."""
    from ai_edge_litert.interpreter import Interpreter

    model = create_runner(Runtime.TFLITE).load(task.artifact_path, task.execution)
    arrays = make_inputs(model.inputs, 0)
    model.set_inputs(arrays)
    plain, copying = (Interpreter(model_path=task.artifact_path, num_threads=1) for _ in "IS")
    signature = copying.get_signature_runner(next(iter(copying.get_signature_list())))
    given = {
        spec.name: array.astype(signature.get_input_details()[spec.name]["dtype"])
        for spec, array in zip(model.inputs, arrays, strict=True)
    }
    states = {spec.state: spec.name for spec in model.inputs if spec.state is not None}
    plain.allocate_tensors()
    for detail in plain.get_input_details():
        plain.set_tensor(detail["index"], given[plain_input_name(detail["name"])])

    def copied() -> None:
        found = signature(**given)
        given.update({name: np.asarray(found[output]) for output, name in states.items()})

    return {"C": model.run, "c": model.run, "I": plain.invoke, "S": copied}


def paired(calls: dict[str, Call]) -> dict[str, list[float]]:
    """Ratios of block medians: C/I, C/S and C/C."""
    rng, ratios = Random(0), {"C/I": [], "C/S": [], "C/C": []}
    for call in calls.values():
        block_median(call)
    for _ in range(PAIRS):
        names = list(calls)
        rng.shuffle(names)
        medians = {name: block_median(calls[name]) for name in names}
        ratios["C/I"].append(medians["C"] / medians["I"])
        ratios["C/S"].append(medians["C"] / medians["S"])
        ratios["C/C"].append(medians["C"] / medians["c"])
    return ratios


def block_median(call: Call) -> float:
    """Median nanoseconds of one block."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
