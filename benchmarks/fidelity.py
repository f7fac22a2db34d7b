"""Does fleetrank's timing loop see what a plain loop of the same runtime sees?

For 4 models x 3 runtimes, in one fresh process each, three loops alternate in blocks in random
order: fleetrank's (F), a plain one (A) and another plain one (B). A pair gives the ratio of the
block medians F/A, and A/B, which is what chance does to a ratio. Every pair loads the model anew
for each loop, in random order: where a session's memory comes to lie moves SqueezeNet in ONNX
Runtime by up to 5 %, so that two sessions loaded once would compare two places. For TFLite,
processes of `litert-benchmark` alternate with fleetrank's workers. Printed: the median of 20 ratios
with its 95 % interval by order statistics, and the loop's own time per run with an empty step.

Run on a quiet host: `make bench`. Takes about eight minutes. Exported models are taken from the
artifact cache of this workspace, or made.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
from scipy.stats import quantile_test

from fleetrank.device_agents.contract.runtime import LoadedModel
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.registry import create_agent
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.runner import create_runner
from fleetrank.device_agents.timing import HalfWidthRule, time_runs
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Format, Runtime
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_zoo

MODELS = ("mobilenet_v2", "squeezenet1_1", "resnet18", "deit_tiny")
RUNTIMES = {"onnx": "onnx", "torch": "pt2", "tflite": "tflite"}
PAIRS = 20
TOOL_PAIRS = 6
BLOCK_S = 0.2
"""Some 8 runs of the slowest model, yet both blocks of a pair see the same load."""
EMPTY_RUNS = 200_000
TOLERANCE = 0.03

Loop = Callable[[int], float]
"""Times that many runs and returns their median in nanoseconds."""


def main() -> None:
    """Runs every cell in a process of its own and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", nargs=3, metavar=("RUNTIME", "PATH", "SHA256"))
    cell = parser.parse_args().cell
    if cell:
        print(json.dumps(paired_ratios(cell[0], cell[1])))
        return
    print(f"loop overhead with an empty step: {empty_step_ns():.0f} ns per run\n")
    print(f"{'model':16} {'runtime':7}  fleetrank / plain         plain / plain (A/A)")
    n_shown = 0
    for model in MODELS:
        for runtime, file_format in RUNTIMES.items():
            path, sha256 = artifact_of(model, file_format)
            command = [sys.executable, __file__, "--cell", runtime, path, sha256]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            ratios = json.loads(done.stdout.splitlines()[-1])
            n_shown += is_faithful(ratios["F/A"])
            print(f"{model:16} {runtime:7}  {shown(ratios['F/A'])}  {shown(ratios['A/B'])}")
    print(f"\n{'model':16} fleetrank's worker / litert-benchmark, medians of processes")
    for model in MODELS:
        print(f"{model:16} {shown(tool_ratios(*artifact_of(model, 'tflite')))}")
    print(f"\n{n_shown} of {len(MODELS) * len(RUNTIMES)} cells shown to lie within {TOLERANCE:.0%}")


def artifact_of(model: str, file_format: str) -> tuple[str, str]:
    """Path and sha256 of an exported zoo model, exporting it when the cache has none."""
    request = ExportRequest(
        model=resolve(load_zoo()[model]), weights=Weights(), format=Format(file_format)
    )
    cache = ArtifactCache(Path("artifacts"))
    found = cache.find(request)
    if found is None:
        fleetrank = str(Path(sys.executable).parent / "fleetrank")
        runtime = RUNTIME_OF_FORMAT[request.format]
        command = [fleetrank, "models", "export", model, "--runtime", runtime]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = cache.find(request)
    if found is None:
        raise SystemExit(f"{model} has no {file_format} artifact: see `fleetrank models export`")
    return found.path, found.sha256


def paired_ratios(runtime: str, path: str) -> dict[str, list[float]]:
    """Twenty ratios of block medians F/A and A/B inside this process."""
    rng, ratios = Random(0), {"F/A": [], "A/B": []}
    inputs = make_inputs(load_model(runtime, path).inputs, seed=0)
    loads = {
        "F": lambda: load_fleetrank(runtime, path, inputs),
        "A": lambda: plain_loop(PLAIN_STEPS[runtime](path, inputs)),
        "B": lambda: plain_loop(PLAIN_STEPS[runtime](path, inputs)),
    }
    for _ in range(PAIRS):
        medians = block_medians(loads, rng)
        ratios["F/A"].append(medians["F"] / medians["A"])
        ratios["A/B"].append(medians["A"] / medians["B"])
    return ratios


def block_medians(loads: dict[str, Callable[[], Loop]], rng: Random) -> dict[str, float]:
    """Median of one block of each loop, every loop over a session of its own."""
    names = list(loads)
    rng.shuffle(names)
    loops = {name: loads[name]() for name in names}
    warm_ns = [loop(10) for loop in loops.values()]
    runs = max(5, round(BLOCK_S / (min(warm_ns) / 1e9)))
    rng.shuffle(names)
    return {name: loops[name](runs) for name in names}


def load_fleetrank(runtime: str, path: str, inputs: list[np.ndarray]) -> Loop:
    """Fleetrank's loop over a session of fleetrank's."""
    model = load_model(runtime, path)
    model.set_inputs(inputs)
    return fleetrank_loop(model.run)


def load_model(runtime: str, path: str) -> LoadedModel:
    """A session as a worker has it."""
    backend = "xnnpack" if runtime == "tflite" else "cpu"
    execution = Execution(runtime=Runtime(runtime), backend=backend, threads=1)
    return create_runner(execution.runtime).load(path, execution)


def fleetrank_loop(step: Callable[[], None]) -> Loop:
    """The loop that measures in a sweep, told to stop at a number of runs."""

    def loop(runs: int) -> float:
        rule = HalfWidthRule(policy=MeasurePolicy(min_runs=runs, max_samples=runs, half_width=0.0))
        timed = time_runs(step, time.perf_counter_ns, rule, max_time_s=600)
        return statistics.median(timed.samples_ns)

    return loop


def plain_loop(step: Callable[[], object]) -> Loop:
    """What a user would write in a notebook."""

    def loop(runs: int) -> float:
        samples = []
        for _ in range(runs):
            start = time.perf_counter_ns()
            step()
            samples.append(time.perf_counter_ns() - start)
        return statistics.median(samples)

    return loop


def plain_onnx(path: str, inputs: list[np.ndarray]) -> Callable[[], object]:
    """ONNX Runtime as its documentation shows it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {item.name: array for item, array in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, feed)


def plain_torch(path: str, inputs: list[np.ndarray]) -> Callable[[], object]:
    """A `.pt2` as torch.export's documentation shows it."""
    import torch

    torch.set_num_threads(1)
    module = torch.export.load(path).module()
    tensors = [torch.from_numpy(array) for array in inputs]

    def step() -> object:
        with torch.inference_mode():
            return module(*tensors)

    return step


def plain_tflite(path: str, inputs: list[np.ndarray]) -> Callable[[], object]:
    """LiteRT's interpreter as its documentation shows it."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    return interpreter.invoke


PLAIN_STEPS = {"onnx": plain_onnx, "torch": plain_torch, "tflite": plain_tflite}


def tool_ratios(path: str, sha256: str) -> list[float]:
    """Medians of fleetrank's workers over those of litert-benchmark, process by process."""
    return [
        worker_median_ns(path, sha256) / litert_benchmark_median_ns(path) for _ in range(TOOL_PAIRS)
    ]


def worker_median_ns(path: str, sha256: str) -> float:
    """Median of one fresh fleetrank worker."""
    task = MeasureTask(
        task_id="fidelity",
        artifact_path=str(Path(path).resolve()),
        artifact_sha256=sha256,
        execution=Execution(runtime=Runtime.TFLITE, backend="xnnpack", threads=1),
        is_trusted=True,
    )
    return statistics.median(create_agent("cpu", {}).measure(task).samples_ns)


def litert_benchmark_median_ns(path: str) -> float:
    """Median of one process of LiteRT's own tool, which rounds to 10 us."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        tool = Path(sys.executable).parent / "litert-benchmark"
        command = [str(tool), "--model", path, "--num_threads", "1", "--num_runs", "100",
                   "--warmup_runs", "20", "--result_json", str(result)]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return float(json.loads(result.read_text())["latency"]["median_ms"]) * 1e6


def empty_step_ns() -> float:
    """Wall time per run of fleetrank's loop around a step that does nothing."""
    loop = fleetrank_loop(lambda: None)
    start = time.perf_counter_ns()
    loop(EMPTY_RUNS)
    return (time.perf_counter_ns() - start) / EMPTY_RUNS


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % interval of the median by order statistics."""
    found = quantile_test(ratios, q=statistics.median(ratios), p=0.5).confidence_interval(0.95)
    return float(found.low), float(found.high)


def is_faithful(ratios: list[float]) -> bool:
    """Whether the interval of the median lies within the tolerance; holding 1 shows nothing."""
    low, high = interval(ratios)
    return low >= 1 - TOLERANCE and high <= 1 + TOLERANCE


def shown(ratios: list[float]) -> str:
    """Median and interval."""
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
