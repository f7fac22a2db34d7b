"""Profiles one model in one worker: its kernels over some runs, as medians."""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from fleetrank.device_agents.contract.kernel_profile import MOST_RUNS, Kernel, Profile
from fleetrank.device_agents.contract.runtime import LoadedModel
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.device_agents.profiling.profiler import Profiler, Run


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
