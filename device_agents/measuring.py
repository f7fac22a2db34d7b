"""The measuring protocol inside the worker: prime, load, first inference, warm up, time."""

import gc
import hashlib
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from device_agents.conditions import CpuTime, read_conditions, read_cpu_time, shares
from device_agents.errors import AgentError, BadArtifactError, UnsupportedError
from device_agents.failures import failure_from_error, is_memory_error
from device_agents.flags import Seen, judge
from device_agents.inputs import make_inputs
from device_agents.isolation import Inherited, involuntary_switches, usable_cpus
from device_agents.memory import growth_bytes, read_memory, reset_peak
from device_agents.runtimes.registry import create_runner
from device_agents.runtimes.runner import LoadedModel, Runner, TensorSpec
from device_agents.stability import HalfWidthRule
from device_agents.timing import TimedRuns, WarmUp, collection_off, time_runs, warm_up
from device_agents.types import Conditions, Measurement, MeasureTask, WorkerFacts
from device_agents.vocabulary import MemoryMetric, Mode, Origin, Status

CONDITIONS_WINDOW_S = 0.25
"""How long this process idles to see what others use: 25 ticks a core, so 2 to 4 % resolution."""

Stage = Callable[[str], None]
"""Told the name of each stage before it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    model: LoadedModel
    load_ns: int
    first_inference_ns: int
    baseline_bytes: int | None
    load_peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    warm: WarmUp
    timed: TimedRuns
    run_peak_bytes: int | None
    involuntary_switches: int
    after: Conditions


def measure(task: MeasureTask, inherited: Inherited, enter: Stage) -> Measurement:
    """Measures one repeat in this process; whatever goes wrong becomes a failed measurement."""
    started = utc_now()
    stage = "start"

    def note(name: str) -> None:
        nonlocal stage
        stage = name
        enter(name)

    try:
        measurement = _measure(task, inherited, note)
    except Exception as error:  # every end of a task has to become a stored row
        measurement = Measurement(
            task_id=task.task_id,
            status=Status.FAILED,
            origin=Origin.MEASURED,
            failure=failure_from_error(error, stage),
        )
    return replace(measurement, started_utc=started, finished_utc=utc_now())


def utc_now() -> str:
    """The stamp rows carry."""
    return datetime.now(UTC).isoformat()


def check_artifact(path: str, sha256: str) -> None:
    """Refuses a file that is not the one the task was made for.

    Raises:
        BadArtifactError: the file is missing or has changed.
    """
    try:
        with Path(path).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadArtifactError(
            f"cannot read {path}: {error.strerror}", "export the model again"
        ) from error
    if found != sha256:
        raise BadArtifactError(
            f"{path} has changed: its sha256 is {found}, not {sha256}",
            "delete the file and export the model again",
        )


def check_batch(inputs: Sequence[TensorSpec], batch: int) -> None:
    """Refuses a file of fixed size whose batch is not the one the row would claim.

    Raises:
        UnsupportedError: no input has this batch as its first size; for a batch of one, where
            inputs without a batch axis are legal, only images tell.
    """
    first_sizes = [spec.shape[0] for spec in inputs if len(spec.shape) >= (1 if batch > 1 else 4)]
    if (batch > 1 or first_sizes) and batch not in first_sizes:
        raise UnsupportedError(
            f"the file is made for other batches than {batch}: its inputs begin with {first_sizes}",
            "export it with this batch or with a free one",
        )


def run_once(model: LoadedModel) -> None:
    """One inference whose failure is the artifact's.

    Raises:
        BadArtifactError: the runtime gave up on it.
        MemoryError: an allocation failed.
    """
    try:
        model.run()
    except (AgentError, MemoryError):
        raise
    except Exception as error:
        if is_memory_error(error):
            raise MemoryError(str(error)) from error
        raise BadArtifactError(
            f"the runtime failed while running the file: {type(error).__name__}: {error}",
            "run the file by hand in its runtime; export it again if it fails there too",
        ) from error


def _measure(task: MeasureTask, inherited: Inherited, enter: Stage) -> Measurement:
    enter("start")
    cpus = usable_cpus()
    before = read_conditions(cpus, _idle_shares())
    runner = create_runner(task.execution.runtime)
    check_artifact(task.artifact_path, task.artifact_sha256)
    if not task.is_trusted:
        runner.distrust(task.artifact_path)
    _prime(runner, task, enter)
    loaded = _load(runner, task, enter)
    with collection_off():
        ran = _run(loaded, task, enter)
    facts = WorkerFacts(
        runtime_version=runner.version(),
        python_version=platform.python_version(),
        settings=loaded.model.settings,
        affinity=cpus,
        niceness=inherited.niceness,
        oom_score_adj=inherited.oom_score_adj,
        omp_num_threads=inherited.omp_num_threads,
        involuntary_switches=ran.involuntary_switches,
    )
    return _compose(task, loaded, ran, facts, before)


def _prime(runner: Runner, task: MeasureTask, enter: Stage) -> None:
    """Charges lazy imports and pools to a tiny artifact instead of the model."""
    if task.primer_path is None:
        return
    enter("prime")
    # The primer is made at batch 1, and compiling it would cost more than it saves.
    execution = replace(task.execution, mode=Mode.EAGER, batch=1)
    model = runner.load(task.primer_path, execution)
    model.set_inputs(make_inputs(model.inputs, seed=0))
    run_once(model)


def _load(runner: Runner, task: MeasureTask, enter: Stage) -> _Loaded:
    enter("load")
    gc.collect()
    has_reset = reset_peak()
    baseline = read_memory().resident_bytes
    start = time.perf_counter_ns()
    model = runner.load(task.artifact_path, task.execution)
    load_ns = time.perf_counter_ns() - start
    check_batch(model.inputs, task.execution.batch)
    enter("first_inference")
    model.set_inputs(make_inputs(model.inputs, task.seed))
    start = time.perf_counter_ns()
    run_once(model)
    first_ns = time.perf_counter_ns() - start
    peak = read_memory().peak_bytes if has_reset else None
    return _Loaded(
        model=model,
        load_ns=load_ns,
        first_inference_ns=first_ns,
        baseline_bytes=baseline,
        load_peak_bytes=growth_bytes(baseline, peak),
    )


def _run(loaded: _Loaded, task: MeasureTask, enter: Stage) -> _Ran:
    enter("warmup")
    has_reset = reset_peak()
    warm = warm_up(loaded.model.run, time.perf_counter_ns, task.policy)
    enter("timed")
    switches, cpu, own = involuntary_switches(), read_cpu_time(), _own_ticks()
    timed = time_runs(
        loaded.model.run,
        time.perf_counter_ns,
        HalfWidthRule(policy=task.policy),
        max_time_s=task.policy.max_time_s,
    )
    switches = involuntary_switches() - switches
    used = shares(cpu, read_cpu_time(), _own_ticks() - own)
    peak = read_memory().peak_bytes if has_reset else None
    return _Ran(
        warm=warm,
        timed=timed,
        run_peak_bytes=growth_bytes(loaded.baseline_bytes, peak),
        involuntary_switches=switches,
        after=read_conditions(usable_cpus(), used),
    )


def _compose(
    task: MeasureTask, loaded: _Loaded, ran: _Ran, facts: WorkerFacts, before: Conditions
) -> Measurement:
    seen = Seen(
        samples_ns=ran.timed.samples_ns,
        is_warmup_stable=ran.warm.is_stable,
        involuntary_switches=facts.involuntary_switches,
        niceness=facts.niceness,
        before=before,
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
        stop_reason=ran.timed.stop_reason,
        memory_metric=MemoryMetric.VMHWM_GROWTH if has_memory else None,
        baseline_memory_bytes=loaded.baseline_bytes,
        load_peak_memory_bytes=loaded.load_peak_bytes,
        run_peak_memory_bytes=ran.run_peak_bytes,
        conditions_before=before,
        conditions_after=ran.after,
        worker=facts,
        flags=judge(seen, task.policy),
    )


def _idle_shares() -> tuple[float, float] | None:
    before: CpuTime | None = read_cpu_time()
    own = _own_ticks()
    time.sleep(CONDITIONS_WINDOW_S)
    return shares(before, read_cpu_time(), _own_ticks() - own)


def _own_ticks() -> float:
    """CPU time of this process in the unit of `/proc/stat`."""
    times = os.times()
    return (times.user + times.system) * os.sysconf("SC_CLK_TCK")
