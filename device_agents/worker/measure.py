"""The measuring protocol inside the worker: prime, load, first inference, warm up, time."""

import gc
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import (
    Conditions,
    Energy,
    Measurement,
    WorkerFacts,
    failed,
    utc_now,
)
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.host.conditions import CpuTime, Shares, read_cpu_time, shares
from fleetrank.device_agents.host.energy import (
    EnergySource,
    EnergyWindow,
    count_energy,
    judge_energy,
)
from fleetrank.device_agents.host.worker_process import (
    Inherited,
    growth_bytes,
    involuntary_switches,
    usable_cpus,
)
from fleetrank.device_agents.runtimes.runner import LoadedModel, Runner, create_runner, make_inputs
from fleetrank.device_agents.timing.flags import Seen, judge
from fleetrank.device_agents.timing.timing import (
    HalfWidthRule,
    TimedRuns,
    WarmUp,
    collection_off,
    time_runs,
    warm_up,
)
from fleetrank.device_agents.worker.artifact_checks import (
    check_artifact,
    check_batch,
    check_unchanged,
    run_once,
)
from fleetrank.device_agents.worker.watch import Around, Watch, copy_ns, open_watch
from fleetrank.foundation.vocabulary import Mode, Origin, Status

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls

CONDITIONS_WINDOW_S = 0.25
"""Time this process idles to measure other processes: 25 ticks per core, so 2 to 4 % resolution."""

_IDLE_PAUSE_S = 0.005
"""One step of sleep, while idle power is counted."""

Stage = Callable[[str], None]
"""Called with the name of each stage before it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    model: LoadedModel
    load_ns: int
    first_inference_ns: int
    baseline_bytes: int | None
    load_peak_bytes: int | None
    idle: EnergyWindow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    warm: WarmUp
    timed: TimedRuns
    device_samples_ns: tuple[int, ...] | None
    input_copy_ns: int | None
    run_peak_bytes: int | None
    involuntary_switches: int
    before: Conditions
    after: Conditions
    energy: Energy | None


def measure(
    task: MeasureTask, inherited: Inherited, enter: Stage, walls: "Walls | None"
) -> Measurement:
    """Measures one repeat in this process; any failure becomes a failed measurement.

    Args:
        task: what to measure.
        inherited: the settings that this process inherited.
        enter: called with each stage.
        walls: barriers around this process; `None` for a trusted file.
    """
    started = utc_now()
    stage = "start"

    def note(name: str) -> None:
        nonlocal stage
        stage = name
        enter(name)

    try:
        measurement = _measure(task, inherited, note, walls)
        if walls is not None:
            walls.check()
    except Exception as error:  # every task must become a stored row
        cause = error if walls is None else walls.cause(error)
        measurement = failed(task.task_id, failure_from_error(cause, stage), Origin.MEASURED)
    return replace(measurement, started_utc=started, finished_utc=utc_now())


def _measure(
    task: MeasureTask, inherited: Inherited, enter: Stage, walls: "Walls | None"
) -> Measurement:
    enter("start")
    watch = open_watch(task)
    before = watch.conditions(_idle_shares())
    runner = create_runner(task.execution.runtime)
    state = check_artifact(task.artifact_path, task.artifact_sha256)
    path = task.artifact_path if task.is_trusted else runner.admit(task.artifact_path)
    _prime(runner, task, enter)
    if walls is not None:
        walls.arm()
    source = watch.energy_source() if task.policy.energy_s > 0 else None
    loaded = _load(runner, replace(task, artifact_path=path), watch, source, enter)
    check_unchanged(task.artifact_path, state)
    with collection_off():
        ran = _run(loaded, task, watch, before, source, enter)
    facts = WorkerFacts(
        runtime_version=runner.version(),
        python_version=platform.python_version(),
        settings=tuple(sorted((*loaded.model.settings, *watch.settings()))),
        affinity=usable_cpus(),
        niceness=inherited.niceness,
        oom_score_adj=inherited.oom_score_adj,
        omp_num_threads=inherited.omp_num_threads,
        involuntary_switches=ran.involuntary_switches,
        confinement=None if walls is None else walls.names,
    )
    return _compose(task, watch, loaded, ran, facts)


def _prime(runner: Runner, task: MeasureTask, enter: Stage) -> None:
    """Counts lazy imports and pools for a tiny artifact instead of the model."""
    if task.primer_path is None:
        return
    enter("prime")
    # The primer is made at batch 1, and compiling it would cost more than it saves.
    execution = replace(task.execution, mode=Mode.EAGER, batch=1)
    model = runner.load(task.primer_path, execution)
    model.set_inputs(make_inputs(model.inputs, seed=0))
    run_once(model)


def _load(
    runner: Runner, task: MeasureTask, watch: Watch, source: EnergySource | None, enter: Stage
) -> _Loaded:
    watch.start_memory()  # opens a GPU, whose idle power then rises: not part of the model
    idle = None
    if source is not None:
        enter("idle")
        idle = count_energy(source, _pause, time.perf_counter_ns, least_s=task.policy.energy_s)
    enter("load")
    gc.collect()
    baseline = watch.start_memory()
    start = time.perf_counter_ns()
    model = runner.load(task.artifact_path, task.execution)
    load_ns = time.perf_counter_ns() - start
    check_batch(model.inputs, task.execution.batch)
    enter("first_inference")
    model.set_inputs(make_inputs(model.inputs, task.seed))
    start = time.perf_counter_ns()
    run_once(model)
    first_ns = time.perf_counter_ns() - start
    return _Loaded(
        model=model,
        load_ns=load_ns,
        first_inference_ns=first_ns,
        baseline_bytes=baseline,
        load_peak_bytes=growth_bytes(baseline, watch.peak_bytes()),
        idle=idle,
    )


def _run(
    loaded: _Loaded,
    task: MeasureTask,
    watch: Watch,
    before: Conditions,
    source: EnergySource | None,
    enter: Stage,
) -> _Ran:
    enter("warmup")
    model, clock = loaded.model, time.perf_counter_ns
    input_copy_ns = copy_ns(model)
    watch.start_run_memory()
    warm = warm_up(model.run, clock, task.policy, Around(watch, model))
    before = watch.warm(before)
    enter("timed")
    around = Around(watch, model)
    switches, cpu, own = involuntary_switches(), read_cpu_time(), _own_ticks()
    timed = time_runs(
        model.run,
        clock,
        HalfWidthRule(policy=task.policy),
        max_time_s=task.policy.max_time_s,
        untimed=around,
    )
    switches = involuntary_switches() - switches
    used = shares(cpu, read_cpu_time(), _own_ticks() - own)
    peak = watch.peak_bytes()
    after = watch.conditions(used)
    return _Ran(
        warm=warm,
        timed=timed,
        device_samples_ns=around.samples_ns(),
        input_copy_ns=input_copy_ns,
        run_peak_bytes=growth_bytes(loaded.baseline_bytes, peak),
        involuntary_switches=switches,
        before=before,
        after=after,
        energy=_energy(loaded, task, source, enter),
    )


def _energy(
    loaded: _Loaded, task: MeasureTask, source: EnergySource | None, enter: Stage
) -> Energy | None:
    """Counts energy in separate runs, because reading a counter takes time."""
    if source is None:
        return None
    enter("energy")
    clock, least_s = time.perf_counter_ns, task.policy.energy_s
    busy = count_energy(source, loaded.model.run, clock, least_s=least_s)
    return judge_energy(source.method, loaded.idle, busy)


def _pause() -> None:
    time.sleep(_IDLE_PAUSE_S)


def _compose(
    task: MeasureTask, watch: Watch, loaded: _Loaded, ran: _Ran, facts: WorkerFacts
) -> Measurement:
    seen = Seen(
        samples_ns=ran.timed.samples_ns,
        device_samples_ns=ran.device_samples_ns,
        is_warmup_stable=ran.warm.is_stable,
        involuntary_switches=facts.involuntary_switches,
        niceness=facts.niceness,
        before=ran.before,
        after=ran.after,
    )
    has_memory = ran.run_peak_bytes is not None
    return Measurement(
        task_id=task.task_id,
        status=Status.OK,
        origin=Origin.MEASURED,
        load_ns=loaded.load_ns,
        first_inference_ns=loaded.first_inference_ns,
        warmup_ns=ran.warm.ns,
        warmup_runs=ran.warm.runs,
        samples_ns=ran.timed.samples_ns,
        device_samples_ns=ran.device_samples_ns,
        input_copy_ns=ran.input_copy_ns,
        stop_reason=ran.timed.stop_reason,
        memory_metric=watch.memory_metric if has_memory else None,
        baseline_memory_bytes=loaded.baseline_bytes,
        load_peak_memory_bytes=loaded.load_peak_bytes,
        run_peak_memory_bytes=ran.run_peak_bytes,
        reserved_memory_bytes=watch.reserved_bytes(),
        process_memory_bytes=watch.process_bytes(),
        energy=ran.energy,
        conditions_before=ran.before,
        conditions_after=ran.after,
        worker=facts,
        flags=judge(seen, task.policy),
    )


def _idle_shares() -> Shares:
    before: CpuTime | None = read_cpu_time()
    own = _own_ticks()
    time.sleep(CONDITIONS_WINDOW_S)
    return shares(before, read_cpu_time(), _own_ticks() - own)


def _own_ticks() -> float:
    """CPU time of this process in the unit of `/proc/stat`."""
    times = os.times()
    return (times.user + times.system) * os.sysconf("SC_CLK_TCK")
