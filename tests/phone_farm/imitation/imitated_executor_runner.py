"""Stands in for ExecuTorch's `executor_runner` on Android: all its output goes to the log.

Source: examples/portable/executor_runner/executor_runner.cpp of ExecuTorch 1.x. The outputs that
`--print_output` asks for are not printed.
"""

from collections.abc import Sequence
from pathlib import Path

from fleetrank.foundation.errors import FleetError
from phone_farm.imitation.command import ImitatedOutput, Surroundings, flags_of
from phone_farm.imitation.inference import InferenceSpec, open_inference

_HEURISTIC_THREADS = 4
"""The meaning of `cpu_threads` -1 on these phones."""
_IDENTIFIER = b"ET12"
"""Bytes 4 to 8 of every program. Source: schema/program.fbs, file_identifier."""
_ABORTED = 134
"""A shell's number for SIGABRT, with which every failed check of the program ends."""


def run(argv: Sequence[str], surroundings: Surroundings) -> ImitatedOutput:
    """Behaves as the program does with these arguments."""
    flags = flags_of("executor_runner")
    for word in argv:
        # gflags: one dash or two; unknown flags are errors.
        name, equals, value = word.lstrip("-").partition("=")
        if not (word.startswith("-") and equals and name in flags):
            return ImitatedOutput(text=f"ERROR: unknown command line flag '{name}'\n", exit_code=1)
        flags[name] = value
    model = Path(flags["model_path"])
    shown = surroundings.shown(str(model))
    threads = int(flags["cpu_threads"])
    spec = InferenceSpec(
        runtime="executorch",
        model=model,
        backend="xnnpack",
        threads=_HEURISTIC_THREADS if threads == -1 else threads,
        argv=tuple(argv),
    )
    if (refusal := _refusal(model)) is not None:
        return ImitatedOutput(log=(refusal,), exit_code=_ABORTED)
    count = int(flags["num_executions"])
    try:
        with open_inference(spec, surroundings) as inference:
            load_ns = inference.load_ns
            times_ns = [inference.run() for _ in range(count)]
    except (FleetError, OSError) as error:
        refusal = f"Loading of method forward failed with status 0x20: {error}"
        return ImitatedOutput(log=(refusal,), exit_code=_ABORTED)
    heading = (
        f"Resetting threadpool with num threads = {spec.threads}",
        f"Model file {shown} is loaded.",
        "Using method forward",
        "Setting up CPU planned buffer 0, size 9633792.",
    )
    closing = f"Model executed successfully {count} time(s) in {sum(times_ns) / 1e6:f} ms."
    iterations = (
        f"Iteration {number} of {count}: {time_ns / 1e6:f} ms"
        for number, time_ns in enumerate(times_ns, start=1)
    )
    loaded = f"Model loaded in {load_ns / 1e6:f} ms."
    return ImitatedOutput(log=(*heading, loaded, *iterations, closing, "1 outputs: "))


def _refusal(model: Path) -> str | None:
    try:
        with model.open("rb") as file:
            head = file.read(8)
    except OSError:
        return f"Failed to open {model.name}: No such file or directory (2)"
    if head[4:] != _IDENTIFIER:
        return f"Failed to parse model file {model.name}"
    return None
