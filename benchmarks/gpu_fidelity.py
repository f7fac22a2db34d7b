"""Do our two clocks on a GPU see what PyTorch's timer and Triton's benchmark see?

    PYTHONPATH=build/import python3 benchmarks/gpu_fidelity.py --artifacts gpu-table/artifacts

For each network, blocks of four ways alternate in random order in one process: our wall clock
against `torch.utils.benchmark.Timer` with number=1, and our event samples with the L2 cache flushed
against `triton.testing.do_bench`, which flushes too. The medians over blocks of the block medians
must agree within 2 %, within 5 % below 1 ms; the exit code is 1 where they do not.

Networks are chosen so that the GPU and not the launching of kernels takes the time: a large batch,
or a replayed graph. `do_bench` lets the host run ahead while the cache is cleared; where launching
is what takes the time, its figure is smaller by up to that lead, and right about something else.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from gpu_artifacts import Artifacts, Cell

from fleetrank.device_agents.cuda.gpu_use import TorchGpuMemory
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.runner import create_runner
from fleetrank.device_agents.runtimes.torch_cuda import TorchCudaModel
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Mode, Precision, Runtime

CASES = (
    ("resnet50", Mode.GRAPHS, 1), ("mobilenet_v2", Mode.GRAPHS, 1), ("deit_tiny", Mode.GRAPHS, 1),
    ("resnet50", Mode.GRAPHS, 32), ("resnet50", Mode.EAGER, 32), ("mobilenet_v2", Mode.EAGER, 256),
)  # fmt: skip
RUNS = 100
"""Of one block; Triton's own choice of repetitions is replaced by time enough for as many."""
BLOCKS = 8
TOLERANCE = 0.02
SHORT_TOLERANCE = 0.05
SHORT_MS = 1.0

Block = Callable[[], float]
"""Median of one block, in milliseconds."""


def main() -> int:
    """Compares every case and says how many are off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--artifacts", type=Path, help="folder of files, as gpu_table.py's")
    options = parser.parse_args()
    print("| network | mode | batch | clock | ours ms | theirs ms | ratio | within |")
    print("|---|---|---|---|---|---|---|---|")
    off = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, mode, batch in CASES:
            cell = Cell(model=name, mode=mode, precision=Precision.FP32, batch=batch)
            model = load(cell, Artifacts(options.artifacts or Path(folder)))
            for clock, (ours, theirs) in compare(model, options.blocks).items():
                limit = SHORT_TOLERANCE if theirs < SHORT_MS else TOLERANCE
                is_off = abs(ours / theirs - 1) > limit
                off += is_off
                print(
                    f"| {name} | {mode} | {batch} | {clock} | {ours:.4f} | {theirs:.4f} "
                    f"| {ours / theirs:.4f} | {'NO' if is_off else f'{limit:.0%}'} |",
                    flush=True,
                )
    print(f"\n{off} of {2 * len(CASES)} outside")
    return 1 if off else 0


def load(cell: Cell, artifacts: Artifacts) -> TorchCudaModel:
    """The network on the GPU, with inputs and after its first runs."""
    artifacts.export(cell)
    model = create_runner(Runtime.TORCH).load(str(artifacts.path(cell)), cell.execution)
    if not isinstance(model, TorchCudaModel):
        raise TypeError("no GPU was asked for")
    model.set_inputs(make_inputs(model.inputs, 0))
    for _ in range(50):
        model.run()
    return model


def compare(model: TorchCudaModel, blocks: int) -> dict[str, tuple[float, float]]:
    """Medians over the blocks of (ours, theirs), by clock."""
    memory = TorchGpuMemory()
    memory.open(flushes=True)
    ways: dict[str, Block] = {
        "wall ours": lambda: our_wall(model),
        "wall theirs": lambda: timer_wall(model),
        "events ours": lambda: our_events(model, memory),
        "events theirs": lambda: triton_events(model),
    }
    medians: dict[str, list[float]] = {way: [] for way in ways}
    rng = Random(0)
    for _ in range(blocks):
        for way in rng.sample(list(ways), len(ways)):
            medians[way].append(ways[way]())
    found = {way: statistics.median(values) for way, values in medians.items()}
    return {
        clock: (found[f"{clock} ours"], found[f"{clock} theirs"]) for clock in ("wall", "events")
    }


def our_wall(model: TorchCudaModel) -> float:
    """A synchronised run between two readings of the clock, as a repeat times it."""
    samples = []
    for _ in range(RUNS):
        start = time.perf_counter_ns()
        model.run()
        samples.append(time.perf_counter_ns() - start)
    return statistics.median(samples) / 1e6


def timer_wall(model: TorchCudaModel) -> float:
    """PyTorch's timer synchronises by itself, so it gets a call that does not."""
    from torch.utils.benchmark import Timer

    timer = Timer("launch()", globals={"launch": model.launch})
    return statistics.median(timer.timeit(1).median for _ in range(RUNS)) * 1e3


def our_events(model: TorchCudaModel, memory: TorchGpuMemory) -> float:
    """The same runs by the GPU's clock, its cache cleared before each."""
    samples = []
    for _ in range(RUNS):
        memory.flush()
        model.run()
        samples.append(model.device_ns() or 0)
    return statistics.median(samples) / 1e6


def triton_events(model: TorchCudaModel) -> float:
    """About as many runs by Triton's benchmark."""
    from triton.testing import do_bench

    once_ms = max(our_wall(model), 0.05)
    return float(
        do_bench(model.launch, warmup=10 * once_ms, rep=RUNS * once_ms, return_mode="median")
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FleetError as error:
        sys.exit(str(error))
