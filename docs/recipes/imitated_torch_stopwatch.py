"""Stands in for `torch_stopwatch`."""

from collections.abc import Sequence
from pathlib import Path

from phone_farm.imitation.command import ImitatedOutput, Surroundings
from phone_farm.imitation.inference import InferenceSpec, open_inference


def run(argv: Sequence[str], surroundings: Surroundings) -> ImitatedOutput:
    """Behaves as the program does with these arguments."""
    path, runs, threads = argv
    spec = InferenceSpec(
        runtime="torch", model=Path(path), backend="cpu", threads=int(threads), argv=tuple(argv)
    )
    with open_inference(spec, surroundings) as inference:
        times_ns = [inference.run() for _ in range(int(runs))]
    return ImitatedOutput(text="".join(f"run took {ns} ns\n" for ns in times_ns))
