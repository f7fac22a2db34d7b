"""Stands in for LiteRT's `benchmark_model`.

Source: tflite/tools/benchmark/benchmark_model.cc and benchmark_tflite_model.cc of LiteRT 2. In
real mode it prints how many kernels the delegate has: the interpreter's Python interface does not
report the share of nodes.
"""

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.errors import FleetError
from phone_farm.imitation.command import ImitatedOutput, Surroundings, flags_of, text_of
from phone_farm.imitation.inference import (
    Inference,
    InferenceSpec,
    describe_us,
    open_inference,
    percentile,
    run_for,
)
from phone_farm.imitation.operators import nodes_of, profile_text
from phone_farm.imitation.protobuf_writer import encode_floats, encode_integers, encode_messages

_SHOWN_INPUTS = {
    "input_layer": "layers", "input_layer_shape": "shapes",
    "input_layer_value_range": "value ranges",
}  # fmt: skip
"""Stated inputs are printed; in real mode the runtime of this host chooses sizes and values."""
_NODES = 65
"""Nodes of every canned model."""
_TAKEN = {"nnapi": 54, "external": 52}
"""Nodes that a delegate takes, for those that do not take all."""
_PROFILED = "enable_op_profiling"
_IDENTIFIER = b"TFL3"
_MB = 2**20
_DELEGATES = {
    "xnnpack": ("XNNPACK", "TfLiteXNNPackDelegate"),
    "gpu": ("GPU", "TfLiteGpuDelegateV2"),
    "nnapi": ("NNAPI", "TfLiteNnapiDelegate"),
    "external": ("EXTERNAL", "TfLiteStandInDelegate"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    init_us: int
    warmup_us: tuple[int, ...]
    timed_us: tuple[int, ...]
    init_mb: float
    overall_mb: float
    model_mb: float


def run(argv: Sequence[str], surroundings: Surroundings) -> ImitatedOutput:
    """Behaves as the program does with these arguments."""
    flags, unknown = _parse(argv)
    model = Path(flags["graph"])
    heading = _heading(flags, unknown, surroundings.shown(flags["graph"]))
    backend = _backend(flags)
    spec = InferenceSpec(
        runtime="tflite",
        model=model,
        backend=backend,
        threads=int(flags["num_threads"]),
        argv=tuple(argv),
    )
    refusal = _refusal(flags, model, backend, is_canned=surroundings.is_canned)
    if refusal is not None:
        return _failed(heading, refusal)
    try:
        with open_inference(spec, surroundings) as inference:
            done = _measure(inference, flags, model)
        profile = _profile(flags, backend, done)
    except (FleetError, OSError, ValueError) as error:
        return _failed(heading, f"Failed to load model {surroundings.shown(str(error))}")
    placed = heading + _placement(backend, inference.delegate_kernels)
    return ImitatedOutput(
        text=placed + _report(done, flags) + profile,
        result_path=flags["result_file_path"] or None,
        result=_message(done),
    )


def _parse(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Known flags with their values, and the unknown words."""
    flags = flags_of("benchmark_model")
    unknown = []
    for word in argv:
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and equals and name in flags:
            flags[name] = value
        else:
            unknown.append(word)
    return flags, unknown


def _backend(flags: dict[str, str]) -> str:
    if flags["external_delegate_path"]:
        return "external"
    for name in ("gpu", "nnapi"):
        if flags[f"use_{name}"] == "true":
            return name
    return "builtin" if flags["use_xnnpack"] == "false" else "xnnpack"


def _refusal(flags: dict[str, str], model: Path, backend: str, *, is_canned: bool) -> str | None:
    try:
        with model.open("rb") as file:
            head = file.read(8)
    except OSError:
        return f"Could not open '{model.name}'."
    if head[4:] != _IDENTIFIER:
        return "The model is not a valid Flatbuffer file"
    if flags[_PROFILED] == "true" and not is_canned:
        return f"Failed to parse flag '{_PROFILED}': this host's runtime reports no operators"
    if backend in ("gpu", "nnapi", "external") and not is_canned:
        return f"Failed to apply {_DELEGATES[backend][0]} delegate."
    if backend in _TAKEN and flags["require_full_delegation"] == "true":
        return "Disallowed CPU fallback detected."
    return (
        _missing_library(Path(flags["external_delegate_path"])) if backend == "external" else None
    )


def _missing_library(delegate: Path) -> str | None:
    """What Android's linker says of a delegate whose folder it does not search."""
    searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if delegate.is_file() and str(delegate.parent) in searched:
        return None
    return f'Failed to apply EXTERNAL delegate: dlopen failed: library "{delegate.name}" not found'


def _measure(inference: Inference, flags: dict[str, str], model: Path) -> _Run:
    max_s = float(flags["max_secs"])
    init_mb = inference.load_bytes / _MB
    warmup_us = run_for(
        inference,
        min_runs=int(flags["warmup_runs"]),
        min_s=float(flags["warmup_min_secs"]),
        max_s=max_s,
    )
    timed_us = run_for(
        inference, min_runs=int(flags["num_runs"]), min_s=float(flags["min_secs"]), max_s=max_s
    )
    return _Run(
        init_us=inference.load_ns // 1000,
        warmup_us=warmup_us,
        timed_us=timed_us,
        init_mb=init_mb,
        overall_mb=inference.peak_bytes() / _MB,
        model_mb=model.stat().st_size / 1e6,
    )


def _heading(flags: dict[str, str], unknown: list[str], shown: str) -> str:
    inputs = (
        f"INFO: Input {words}: [{flags[name]}]\n"
        for name, words in _SHOWN_INPUTS.items()
        if flags[name]
    )
    warning = f"WARN: Unconsumed cmdline flags: {' '.join(unknown)}\n" if unknown else ""
    return text_of(
        "benchmark_model_heading", **flags, shown=shown, unknown=warning, inputs="".join(inputs)
    )


def _placement(backend: str, kernels: int | None) -> str:
    if backend == "builtin":
        return ""
    name, kernel = _DELEGATES[backend]
    applied = f"INFO: Explicitly applied {name} delegate, and the model graph will be"
    if kernels is not None:
        return f"{applied} partially executed by the delegate w/ {kernels} delegate kernels.\n"
    taken = _TAKEN.get(backend, _NODES)
    return (
        f"INFO: {name} delegate created.\n"
        f"VERBOSE: Replacing {taken} out of {_NODES} node(s) with delegate ({kernel}) node, "
        "yielding 1 partitions for subgraph 0.\n"
        f"{applied} {'completely' if taken == _NODES else 'partially'} executed by the delegate.\n"
    )


def _report(done: _Run, flags: dict[str, str]) -> str:
    return text_of(
        "benchmark_model",
        **flags,
        model_mb=done.model_mb,
        init_us=done.init_us,
        init_ms=done.init_us / 1000,
        first_us=done.warmup_us[0] if done.warmup_us else 0,
        warmup=describe_us(done.warmup_us),
        warmup_mean_us=_mean(done.warmup_us),
        timed=describe_us(done.timed_us),
        mean_us=_mean(done.timed_us),
        init_mb=done.init_mb,
        overall_mb=done.overall_mb,
    )


def _profile(flags: dict[str, str], backend: str, done: _Run) -> str:
    """The times of operators at the end of the text."""
    if flags[_PROFILED] != "true":
        return ""
    delegate = None if backend == "builtin" else _DELEGATES[backend][1]
    return profile_text(nodes_of(Path(flags["graph"])), done.timed_us, delegate=delegate)


def _message(done: _Run) -> bytes | None:
    if not (timed := done.timed_us) or not done.warmup_us:
        return None
    p5, median, p95 = (percentile(timed, p) for p in (5, 50, 95))
    times_us = (
        _mean(timed), min(timed), max(timed), statistics.pstdev(timed), median, p5, p95,
        done.init_us, done.warmup_us[0], _mean(done.warmup_us),
    )  # fmt: skip
    latency = encode_floats({number: us / 1000 for number, us in enumerate(times_us, start=1)})
    memory = encode_integers({1: int(done.init_mb * 1024), 2: int(done.overall_mb * 1024)})
    misc = encode_floats({1: done.model_mb}) + encode_integers(
        {2: len(timed), 3: len(done.warmup_us)}
    )
    return encode_messages({2: latency, 3: memory, 4: misc})


def _mean(times_us: Sequence[int]) -> float:
    return statistics.fmean(times_us) if times_us else float("nan")


def _failed(heading: str, why: str) -> ImitatedOutput:
    text = f"{heading}ERROR: {why}\nERROR: Benchmarking failed.\n"
    return ImitatedOutput(text=text, exit_code=1)
