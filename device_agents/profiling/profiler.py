"""The contract of the code that profiles one runtime, and the table of the members."""

import importlib
import re
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Protocol, cast

from fleetrank.device_agents.contract.agent import GPU_BACKENDS, plugin_of
from fleetrank.device_agents.contract.measurement import MOST_RUNS, Kernel, Profile
from fleetrank.device_agents.contract.runtime import LoadedModel, Runner
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy
from fleetrank.device_agents.errors import BadOutputError, missing_library
from fleetrank.device_agents.runtimes.executorch_runner import ExecutorchRunner
from fleetrank.device_agents.runtimes.torch_runner import TorchRunner
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import NS_PER_MS, Mode, Runtime

Run = Sequence[Kernel]
"""The calls of one inference, in order, each with its own time."""


class Profiler(Protocol):
    """Profiles one model in one process. Its module imports no library at its top."""

    runner: Runner
    """It admits files and states the version."""

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact so that its kernels are timed; raises the errors of `Runner.load`."""
        ...

    def last_runs(self, count: int) -> Sequence[Run]:
        """Ends the profile and returns the calls of the last inferences, oldest first.

        Raises:
            BadOutputError: the runtime's own profile cannot be read.
        """
        ...


_HERE = "fleetrank.device_agents.profiling"
PROFILERS: Registry[type[Profiler]] = Registry(
    "profiler",
    {
        Runtime.ONNX: f"{_HERE}.onnx_profiler:OnnxProfiler",
        Runtime.TORCH: f"{_HERE}.profiler:TorchProfiler",
        Runtime.EXECUTORCH: f"{_HERE}.profiler:ExecutorchProfiler",
    },
)


def why_not_profiled(execution: Execution) -> str | None:
    """Says why a worker cannot profile this, or `None`; loads no library.

    Source for GPUs: onnxruntime issue 7390 (a node's event ends when its kernel is queued, so the
    sum is a small part of the run) and pull request 9875 (times of the kernels themselves need a
    build with `--enable_cuda_profiling`, which is off by default).
    """
    if execution.backend in GPU_BACKENDS:
        return (
            "a GPU runs kernels after the processor has started them, and the runtime reports the "
            "time of the start alone: use NVIDIA's Nsight Systems"
        )
    if plugin_of(execution.backend):
        return "ONNX Runtime sees the nodes of a plugin as one: use the maker's own profiler"
    if execution.runtime not in PROFILERS:
        return f"the Python library of {execution.runtime} reports no times of kernels"
    if execution.mode is not Mode.EAGER:
        return f"mode {execution.mode} has no nodes to time: profile mode eager"
    if execution.workload.steps is not None:
        return (
            f"{execution.workload} is a prompt and steps: profile the workloads prefill and decode"
        )
    return None


# Profiles one model in one worker: its kernels over some runs, as medians.


def profile_runs(profiler: Profiler, model: LoadedModel, policy: MeasurePolicy) -> Profile:
    """Warms up, profiles up to `MOST_RUNS` runs, fewer if `max_time_s` ends them.

    Raises:
        BadOutputError: the runtime's profile cannot be read or has no kernel.
    """
    for _ in range(policy.min_warmup_runs):
        model.run()
    runs_ns: list[int] = []
    end_ns = time.perf_counter_ns() + round(policy.max_time_s * 1e9)
    while len(runs_ns) < MOST_RUNS and (not runs_ns or time.perf_counter_ns() < end_ns):
        start_ns = time.perf_counter_ns()
        model.run()
        runs_ns.append(time.perf_counter_ns() - start_ns)
    kernels = kernels_of(profiler.last_runs(len(runs_ns)))
    if not kernels:
        raise BadOutputError(
            "the runtime's profile names no kernel", "use the versions in constraints.txt"
        )
    return Profile(kernels=kernels, runs=len(runs_ns), run_ns=round(median(runs_ns)))


def kernels_of(runs: Sequence[Run]) -> tuple[Kernel, ...]:
    """One entry for each node: the median over the runs of its time in one run."""
    called: dict[tuple[str, str | None, str], list[list[Kernel]]] = defaultdict(
        lambda: [[] for _ in runs]
    )
    for place, run in enumerate(runs):
        for call in run:
            called[call.node, call.module, call.operator][place].append(call)
    return tuple(_kernel(calls) for calls in called.values())


def _kernel(by_run: Sequence[Sequence[Kernel]]) -> Kernel:
    first = next(calls for calls in by_run if calls)
    return replace(
        first[0],
        kernel_ns=round(median(sum(call.kernel_ns for call in calls) for calls in by_run)),
        calls=len(first),
        output_bytes=_sum([call.output_bytes for call in first]),
        weight_bytes=_sum([call.weight_bytes for call in first]),
    )


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


# ExecuTorch: its own trace of the kernels (ETDump), read by its developer tools.
#
# XNNPACK names its operators and not the modules that they come from, so the modules are unknown.

_RUNS = "Execute"
"""Name of the blocks of inferences; the others are of loading."""
_OWN_KERNEL = "native_call_"
"""Starts the name of a kernel of ExecuTorch; other events outside of a delegate contain kernels."""
_NUMBER = re.compile(r" #\d+$")


class _Times(Protocol):
    raw: Sequence[float]


class TraceEvent(Protocol):
    """One step of the program; `perf_data.raw` has its milliseconds in each inference."""

    name: str
    is_delegated_op: bool | None
    perf_data: _Times


class ExecutorchProfiler:
    """It fulfils `Profiler`. The worker's parent removes the folder of the trace."""

    def __init__(self) -> None:
        self.runner = ExecutorchRunner(is_traced=True)

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads a program whose kernels are timed."""
        return self.runner.load(path, execution)

    def last_runs(self, count: int) -> list[list[Kernel]]:
        """Writes the trace and reads the kernels of the last runs."""
        if self.runner.program is None:
            raise BadOutputError("no program is loaded", "load one before")
        path = Path(tempfile.mkdtemp(prefix="fleetrank-profile-"), "trace.etdp")
        self.runner.program.write_etdump_result_to_file(str(path))
        try:
            devtools = importlib.import_module("executorch.devtools")
        except ImportError as error:
            raise missing_library("executorch.devtools", "executorch", error) from error
        remedy = "a file from outside needs `trust=true`: the tools start a program to read a trace"
        explained = failing_as(BadOutputError, "ExecuTorch's trace cannot be read", remedy)
        with explained, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            blocks = devtools.Inspector(etdump_path=str(path)).event_blocks
        return runs_of(
            [event for block in blocks if block.name == _RUNS for event in block.events], count
        )


def runs_of(events: Iterable[TraceEvent], count: int) -> list[list[Kernel]]:
    """The kernels of the last runs; without the events that contain other events.

    Raises:
        BadOutputError: a kernel has fewer times than there were runs.
    """
    kernels = [one for one in events if one.is_delegated_op or one.name.startswith(_OWN_KERNEL)]
    if any(len(one.perf_data.raw) < count for one in kernels):
        raise BadOutputError(
            "ExecuTorch's trace lacks runs", "use the version of ExecuTorch in constraints.txt"
        )
    names = [f"{number}: {one.name}" for number, one in enumerate(kernels)]
    return [
        [
            Kernel(
                node=name,
                module=None,
                operator=_NUMBER.sub("", one.name.removeprefix(_OWN_KERNEL)),
                kernel_ns=round(one.perf_data.raw[place] * NS_PER_MS),
            )
            for name, one in zip(names, kernels, strict=True)
        ]
        for place in range(-count, 0)
    ]


# PyTorch: each node of an exported program is run and timed by itself.
#
# `torch.profiler` knows operators and not modules after an export, so an interpreter runs the
# graph. It takes up to twice as long as the program, mostly between the nodes.

_NO_KERNELS = frozenset({"placeholder", "output", "get_attr"})
"""Kinds of nodes that name a value and compute nothing."""


class _Node(Protocol):
    op: str
    name: str
    target: object
    meta: dict[str, object]


class _Interpreter(Protocol):
    def run(self, *arguments: object) -> object:
        """Runs the graph."""
        ...

    def run_node(self, node: _Node) -> object:
        """Runs one node."""
        ...


class TorchProfiler:
    """It fulfils `Profiler`."""

    def __init__(self) -> None:
        self.runner = TorchRunner(wrap=self._timed)
        self._runs: list[list[Kernel]] = []

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact whose nodes are timed."""
        return self.runner.load(path, execution)

    def last_runs(self, count: int) -> list[list[Kernel]]:
        """The calls of the last inferences."""
        return self._runs[-count:]

    def _timed(self, module: Callable[..., object]) -> Callable[..., object]:
        fx = importlib.import_module("torch.fx")
        interpreter = cast(_Interpreter, fx.Interpreter(module))
        plain, clock = interpreter.run_node, time.perf_counter_ns
        calls: list[Kernel] = []

        def run_node(node: _Node) -> object:
            start = clock()
            result = plain(node)
            ns = clock() - start
            if node.op not in _NO_KERNELS:
                calls.append(_call(node, ns))
            return result

        def run(*arguments: object) -> object:
            calls.clear()
            result = interpreter.run(*arguments)
            self._runs.append(list(calls))
            return result

        interpreter.run_node = run_node  # type: ignore[method-assign]
        return run


def _call(node: _Node, ns: int) -> Kernel:
    operator = operator_of(node.target)
    return Kernel(
        node=node.name,
        module=module_of(node.meta.get("nn_module_stack")),
        operator=operator,
        kernel_ns=ns,
        source_operator=operator,
    )


def module_of(stack: object) -> str | None:
    """The innermost module of a node's stack; empty for the model, `None` without a stack.

    `{"L__self__": ("", "Net"), "L__self___a": ("blocks.0.a", "Linear")}` gives `blocks.0.a`.
    """
    if not isinstance(stack, dict) or not stack:
        return None
    innermost = list(stack.values())[-1]
    path = innermost[0] if isinstance(innermost, tuple | list) and innermost else None
    return path if isinstance(path, str) else None


def operator_of(target: object) -> str:
    """The name of an operation without its overload: `aten.conv2d.default` gives `conv2d`."""
    name = getattr(target, "__name__", None) or str(target)
    return name.removeprefix("aten.").partition(".")[0]
