"""Where a stand-in's times come from: a run of the model on this host, or numbers from its hash."""

import hashlib
import math
import random
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleetrank.device_agents.errors import UnsupportedError
from phone_farm.imitation.command import Surroundings

FASTEST_NS, SLOWEST_NS = 2e6, 40e6
"""Canned latencies of one thread on the fastest phone are between these, uniform in the log:
the range of image networks on phones."""
_THREAD_EXPONENT = 0.7
"""Four threads are about 2.6 times as fast as one, according to published figures."""
_BACKEND_FACTORS = {"builtin": 2.5, "gpu": 0.6, "nnapi": 0.8}
_NOISE = 0.01
_PROCESS_NOISE = 0.02
"""There is more noise between processes than within one; see the project's own measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSpec:
    """The model and the settings that a program must run."""

    runtime: str
    model: Path
    backend: str
    threads: int
    argv: tuple[str, ...]


class Inference(Protocol):
    """A loaded model whose runs have durations."""

    load_ns: int
    load_bytes: int
    """Growth of the peak resident set while loading."""
    delegate_kernels: int | None
    """Nodes of the executed graph that run on the runtime's delegate; `None` if not known."""

    def run(self) -> int:
        """Runs once and returns how long it took."""
        ...

    def peak_bytes(self) -> int:
        """Growth of the peak resident set since the start."""
        ...


@contextmanager
def open_inference(spec: InferenceSpec, surroundings: Surroundings) -> Iterator[Inference]:
    """Loads the model in the phone's mode; in real mode it holds this host's lease while open.

    Raises:
        FleetError: the runtime rejects the model, or is not supported here.
        OSError: the file cannot be read.
    """
    if surroundings.is_canned:
        yield CannedInference(spec, surroundings)
        return
    with surroundings.quiet_host():
        yield RealInference(spec)


class CannedInference:
    """Times from the model's SHA-256, the phone's seed and speed, and the command line.

    The same command on the same phone gives the same times. Another repeat has another run folder
    in its command line, so its noise differs.
    """

    def __init__(self, spec: InferenceSpec, surroundings: Surroundings) -> None:
        content = spec.model.read_bytes()
        digest = hashlib.sha256(content).digest()
        share = int.from_bytes(digest[:4], "big") / 2**32
        typical_ns = FASTEST_NS * math.exp(share * math.log(SLOWEST_NS / FASTEST_NS))
        seed = hashlib.sha256(digest + f"{surroundings.seed} {spec.argv}".encode()).digest()
        self._rng = random.Random(seed)
        self._latency_ns = (
            typical_ns
            * surroundings.slowness
            * _BACKEND_FACTORS.get(spec.backend, 1.0)
            * max(1, spec.threads) ** -_THREAD_EXPONENT
            * math.exp(self._rng.gauss(0.0, _PROCESS_NOISE))
        )
        self._is_first = True
        self.delegate_kernels: int | None = None
        self._takes_time = surroundings.takes_time
        self.load_ns = int(self._latency_ns * 3)
        self.load_bytes = int(len(content) * 1.2) + 2**20

    def run(self) -> int:
        """Runs once and returns how long it took; the first run is slower, as on real devices."""
        factor = 1.5 if self._is_first else 1.0
        self._is_first = False
        took_ns = int(self._latency_ns * factor * math.exp(abs(self._rng.gauss(0.0, _NOISE))))
        if self._takes_time:
            time.sleep(took_ns * 1e-9)
        return took_ns

    def peak_bytes(self) -> int:
        """Growth of the peak resident set since the start."""
        return self.load_bytes * 3 // 2


class RealInference:
    """The model in one of the runtimes of this host."""

    def __init__(self, spec: InferenceSpec) -> None:
        # Heavy imports: a canned run does not need them.
        from fleetrank.device_agents.contract.task import Execution
        from fleetrank.device_agents.runtimes.made_inputs import make_inputs
        from fleetrank.device_agents.runtimes.runner import create_runner
        from fleetrank.foundation.vocabulary import Runtime

        if spec.runtime not in set(Runtime):
            raise UnsupportedError(
                f"this version has no runtime '{spec.runtime}'",
                "start the phone with `mode=canned`",
            )
        execution = Execution(
            runtime=Runtime(spec.runtime), backend=spec.backend, threads=max(1, spec.threads)
        )
        runner = create_runner(execution.runtime)
        self._start_bytes = _peak_bytes()
        started_ns = time.perf_counter_ns()
        self._model = runner.load(str(spec.model), execution)
        self.load_ns = time.perf_counter_ns() - started_ns
        self.delegate_kernels = getattr(self._model, "delegate_kernels", None)
        self._model.set_inputs(make_inputs(self._model.inputs, seed=0))
        self.load_bytes = self.peak_bytes()

    def run(self) -> int:
        """Runs once and returns how long it took."""
        started_ns = time.perf_counter_ns()
        self._model.run()
        return time.perf_counter_ns() - started_ns

    def peak_bytes(self) -> int:
        """Growth of the peak resident set since the start."""
        return max(0, _peak_bytes() - self._start_bytes)


def _peak_bytes() -> int:
    """The value that the real tools read. Source: getrusage(2), ru_maxrss in kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def percentile(values: Sequence[int], percent: float) -> int:
    """The element at floor(n * p / 100) of the sorted values, not interpolated.

    Source: stats_calculator.h of TensorFlow.
    """
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def describe_us(times_us: Sequence[int]) -> str:
    """The line of statistics of `benchmark_model`, in microseconds."""
    if not times_us:
        return "count=0 p5=0 median=0 p95=0"
    p5, median, p95 = (percentile(times_us, p) for p in (5, 50, 95))
    tail = f"p5={p5} median={median} p95={p95}"
    if min(times_us) == max(times_us):
        return f"count={len(times_us)} curr={times_us[-1]}(all same) {tail}"
    return (
        f"count={len(times_us)} first={times_us[0]} curr={times_us[-1]} min={min(times_us)} "
        f"max={max(times_us)} avg={statistics.fmean(times_us):g} "
        f"std={statistics.pstdev(times_us):.0f} {tail}"
    )


def run_for(inference: Inference, *, min_runs: int, min_s: float, max_s: float) -> tuple[int, ...]:
    """Runs until both minimums are reached or the time is over; returns microseconds.

    The time is the sum of the runs' durations, so canned runs need no real time.
    """
    times_us: list[int] = []
    elapsed_us = 0
    while (len(times_us) < min_runs or elapsed_us < min_s * 1e6) and elapsed_us < max_s * 1e6:
        time_us = inference.run() // 1000
        times_us.append(time_us)
        elapsed_us += max(time_us, 1)
    return tuple(times_us)
