"""Does a step of training from a file take as long as a step of PyTorch's own loop?

Both run in one process on the same batch, in blocks that take turns in random order. Printed is
the ratio of the median steps, file over loop, with its quartiles over blocks, beside the ratio of
two loops (what chance does). Both start from the same weights; their first losses are compared.

Run on a quiet host: `python benchmarks/training_step.py --models resnet18 mobilenet_v2 deit_tiny`.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch

from fleetrank.foundation.vocabulary import Format
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.card import ExportRequest, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_zoo
from fleetrank.models.export.request import export_request
from fleetrank.models.networks.training import ImageLoss, StepByHand, image_batches, prepare
from fleetrank.models.networks.weights import network_with_weights

SEED = 7
Step = Callable[[], torch.Tensor]


def main() -> None:
    """Prints a row for each model and workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["resnet18", "mobilenet_v2", "deit_tiny"])
    parser.add_argument("--workloads", nargs="+", default=["train@2", "train@8", "train@8+adamw"])
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="of each block")
    asked = parser.parse_args()
    print(f"{'model':15} {'workload':14} {'loop ms':>8}  file/loop [quartiles]   loop/loop")
    for model in asked.models:
        for text in asked.workloads:
            print(_row(model, Workload.parse(text), asked.blocks, asked.steps), flush=True)


def _row(model: str, workload: Workload, blocks: int, steps: int) -> str:
    sides = _sides(model, workload)
    torch.set_num_threads(1)
    first = {name: step().item() for name, step in sides.items()}
    if abs(first["file"] - first["loop"]) > 1e-4 * abs(first["loop"]):
        return f"{model:15} {workload!s:14} the first losses differ: {first}"
    rng, medians = Random(SEED), {name: [] for name in sides}
    for _ in range(blocks):
        for name in rng.sample(sorted(sides), len(sides)):
            sides[name]()  # the caches of the other side
            medians[name].append(statistics.median(_timed(sides[name]) for _ in range(steps)))
    ratios = [file / loop for file, loop in zip(medians["file"], medians["loop"], strict=True)]
    chance = [again / loop for again, loop in zip(medians["again"], medians["loop"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return (
        f"{model:15} {workload!s:14} {1e3 * statistics.median(medians['loop']):8.0f}  "
        f"{middle:.3f} [{low:.3f}, {high:.3f}]   {statistics.median(chance):.3f}"
    )


def _timed(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _sides(model: str, workload: Workload) -> dict[str, Step]:
    card, batch = resolve(load_zoo()[model]), workload.batch or 1
    request = ExportRequest(
        model=card, weights=Weights(), format=Format.PT2, batch=batch, workload=workload
    )
    with tempfile.TemporaryDirectory() as folder:
        staged = export_request(request, Path(folder), is_trusted=False)
        module = torch.export.load(staged.path).module(check_guards=False)
    module.validate_inputs = False
    loops = []
    for _ in range(2):
        network, _ = network_with_weights(card.card, Weights(), is_trusted=False, batch=batch)
        batches = image_batches(network, card.card.input_size or 224, batch)
        loops.append(StepByHand(ImageLoss(prepare(network)), workload.optimizer))

    def of_file() -> torch.Tensor:
        with torch.inference_mode():
            return module(*batches.traced)

    return {
        "file": of_file,
        "loop": lambda: loops[0](*batches.traced),
        "again": lambda: loops[1](*batches.traced),
    }


if __name__ == "__main__":
    main()
