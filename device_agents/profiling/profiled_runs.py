"""Profiles one model in one worker: its kernels over some runs, as medians."""

import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from fleetrank.device_agents.contract.kernel_profile import MOST_RUNS, Kernel, Profile
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.device_agents.profiling.profiler import KernelCall, Profiler, Run
from fleetrank.device_agents.runtimes.runner import LoadedModel


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
    called: dict[tuple[str, str | None, str], list[list[KernelCall]]] = defaultdict(
        lambda: [[] for _ in runs]
    )
    for place, run in enumerate(runs):
        for call in run:
            called[call.node, call.module, call.operator][place].append(call)
    return tuple(_kernel(calls) for calls in called.values())


def _kernel(by_run: Sequence[Sequence[KernelCall]]) -> Kernel:
    first = next(calls for calls in by_run if calls)
    one = first[0]
    return Kernel(
        node=one.node,
        module=one.module,
        operator=one.operator,
        kernel_ns=round(median(sum(call.ns for call in calls) for calls in by_run)),
        calls=len(first),
        source_operator=one.source_operator,
        is_inserted=one.is_inserted,
        output_bytes=_sum([call.output_bytes for call in first]),
        weight_bytes=_sum([call.weight_bytes for call in first]),
    )


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
