"""The measuring protocol inside the worker: prime, load, first inference, warm up, time."""

import gc
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fleetrank.device_agents.contract.measurement import (
    Measurement,
    WorkerFacts,
    failed,
    failure_from_error,
)
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.host.conditions import Shares
from fleetrank.device_agents.host.worker_process import Inherited, growth_bytes, usable_cpus
from fleetrank.device_agents.runtimes.runner import (
    Array,
    LoadedModel,
    Runner,
    copies_state,
    create_runner,
    make_inputs,
)
from fleetrank.device_agents.timing import Seen, collection_off, judge
from fleetrank.device_agents.worker.run import (
    Caller,
    Loaded,
    Ran,
    Stage,
    Use,
    admitted,
    check_batch,
    check_unchanged,
    idle_energy,
    run_loaded,
    run_once,
)
from fleetrank.device_agents.worker.watch import Watch, open_watch
from fleetrank.foundation.inputs import Workload, WorkloadKind
from fleetrank.foundation.vocabulary import Mode, Origin, SampleKind, Status

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls

CONDITIONS_WINDOW_S = 0.25
"""Time this process idles to measure other processes: 25 ticks per core, so 2 to 4 % resolution."""


def measure(
    task: MeasureTask, inherited: Inherited, caller: Caller, walls: "Walls | None"
) -> Measurement:
    """Measures one repeat in this process; any failure becomes a failed measurement.

    Args:
        task: what to measure.
        inherited: the settings that this process inherited.
        caller: it is informed of each stage and gives turns.
        walls: barriers around this process; `None` for a trusted file.
    """
    stage = "start"

    def note(name: str) -> None:
        nonlocal stage
        stage = name
        caller.enter(name)

    try:
        if task.is_profiled:
            from fleetrank.device_agents.worker.run import profile

            measurement = profile(task, inherited, note, walls)
        else:
            measurement = _measure(task, inherited, replace(caller, enter=note), walls)
        if walls is not None:
            walls.check()
    except Exception as error:  # every task must become a stored row
        cause = error if walls is None else walls.cause(error)
        measurement = failed(task.task_id, failure_from_error(cause, stage), Origin.MEASURED)
    return measurement


def _measure(
    task: MeasureTask, inherited: Inherited, caller: Caller, walls: "Walls | None"
) -> Measurement:
    caller.enter("start")
    watch = open_watch(task)
    before = watch.conditions(_idle_shares())
    runner = create_runner(task.execution.runtime)
    path, state = admitted(runner, task)
    _prime(runner, task, caller.enter)
    if walls is not None:
        walls.arm()
    loaded = _load(runner, replace(task, artifact_path=path), watch, caller.enter)
    check_unchanged(task.artifact_path, state)
    with collection_off():
        ran = run_loaded(loaded, task, watch, before, caller)
    facts = WorkerFacts(
        runtime_version=runner.version(),
        python_version=platform.python_version(),
        settings=tuple(sorted((*loaded.model.settings, *watch.settings()))),
        affinity=usable_cpus(),
        niceness=inherited.niceness,
        oom_score_adj=inherited.oom_score_adj,
        omp_num_threads=inherited.omp_num_threads,
        involuntary_switches=ran.timed.involuntary_switches,
        confinement=None if walls is None else walls.names,
    )
    return _compose(task, watch, loaded, ran, facts)


def _prime(runner: Runner, task: MeasureTask, enter: Stage) -> None:
    """Counts lazy imports and pools for a tiny artifact instead of the model."""
    if task.primer_path is None:
        return
    enter("prime")
    # The primer is made at batch 1, and compiling it would cost more than it saves.
    execution = replace(task.execution, mode=Mode.EAGER, batch=1, inputs=())
    model = runner.load(task.primer_path, execution)
    model.set_inputs(make_inputs(model.inputs, seed=0))
    run_once(model)


def _load(runner: Runner, task: MeasureTask, watch: Watch, enter: Stage) -> Loaded:
    source = watch.energy_source() if task.policy.energy_s > 0 else None
    watch.start_memory()  # opens a GPU, whose idle power then rises: not part of the model
    idle = None
    if source is not None:
        enter("idle")
        idle = idle_energy(source, task.policy)
    enter("load")
    gc.collect()
    baseline = watch.start_memory()
    start = time.perf_counter_ns()
    model = runner.load(task.artifact_path, task.execution)
    load_ns = time.perf_counter_ns() - start
    if not task.execution.inputs:  # stated inputs were compared with the file's, sizes included
        check_batch(model.inputs, task.execution.batch)
    enter("first_inference")
    sequences = None
    if task.execution.workload.steps is None:
        model.set_inputs(make_inputs(model.inputs, task.seed))
    else:
        from fleetrank.device_agents.worker.run import sequence_runs

        sequences = sequence_runs(model, task)
    start = time.perf_counter_ns()
    run_once(model)
    first_ns = time.perf_counter_ns() - start
    return Loaded(
        model=model,
        load_ns=load_ns,
        first_inference_ns=first_ns,
        baseline_bytes=baseline,
        load_peak_bytes=growth_bytes(baseline, watch.peak_bytes()),
        source=source,
        idle=idle,
        sequences=sequences,
    )


def _compose(
    task: MeasureTask, watch: Watch, loaded: Loaded, ran: Ran, facts: WorkerFacts
) -> Measurement:
    timed, sequences = ran.timed, ran.timed.sequences
    seen = Seen(
        samples_ns=timed.runs.samples_ns if sequences is None else sequences.medians_ns,
        n_runs=len(timed.runs.samples_ns),
        observed_ns=sum(timed.runs.samples_ns) + sum(sequences.prompts_ns if sequences else ()),
        copies_state=copies_state(loaded.model),
        has_loop_overhead=sequences is not None and sequences.has_overhead,
        device_samples_ns=timed.device_samples_ns,
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
        sample_kind=SampleKind.PER_INFERENCE if sequences is None else SampleKind.PER_TOKEN,
        load_ns=loaded.load_ns,
        first_inference_ns=loaded.first_inference_ns,
        warmup_ns=ran.warm.ns,
        warmup_runs=ran.warm.runs,
        samples_ns=timed.runs.samples_ns,
        ttft_samples_ns=None if sequences is None else sequences.prompts_ns,
        device_samples_ns=timed.device_samples_ns,
        blocks=timed.blocks,
        input_copy_ns=ran.input_copy_ns,
        stop_reason=timed.runs.stop_reason,
        sustained_ns=timed.sustained_ns,
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
        flags=judge(seen, task.policy if loaded.sequences is None else loaded.sequences.policy),
    )


def _idle_shares() -> Shares:
    use = Use()
    use.begin()
    time.sleep(CONDITIONS_WINDOW_S)
    use.end()
    return use.shares()


# Runs a file whose outputs are states of its next inference, for verification.

Stored = Mapping[str, Array]
"""Arrays of the file of inputs: `input_K` of each input, `step_K` and `every_K` as below."""


def is_chain(stored: Stored) -> bool:
    """Whether the file says which outputs feed the next inference."""
    return any(name.startswith("every_") for name in stored)


def run_chain(
    stored: Stored, execution: Execution, load: Callable[[Execution], LoadedModel]
) -> list[Array]:
    """Runs inference after inference, and gives each the states that the last one computed.

    Args:
        stored: `input_K` holds the values of input K, the inferences along the first axis; of a
            state only numbers, which are repeated until they fill the first one. `every_K` marks a
            state. With `step_K` the file has two graphs, and these are the values for the second.
        execution: of the file.
        load: opens the file for an execution.

    Returns:
        The outputs that are not states, joined along their first axis; then of each last state
        every so many-th value.

    Raises:
        BadArtifactError: the file has other inputs or fewer outputs, or it fails.
    """
    n_inputs = sum(name.startswith("input_") for name in stored)
    is_state = [f"every_{k}" in stored for k in range(n_inputs)]
    states: list[Array] = []
    rows: list[list[Array]] = []
    for name, phase in _phases(stored, execution, is_state):
        values = {k: stored[f"{name}_{k}"] for k in range(n_inputs) if not is_state[k]}
        numbers = [stored[f"input_{k}"] for k in range(n_inputs) if is_state[k]]
        states = _run_phase(load(phase), values, states or numbers, rows)
    strides = [int(stored[f"every_{k}"]) for k in range(n_inputs) if is_state[k]]
    outputs = [np.concatenate(column) for column in zip(*rows, strict=True)]
    pairs = zip(states, strides, strict=True)
    return [*outputs, *(state.reshape(-1)[::stride] for state, stride in pairs)]


def _run_phase(
    model: LoadedModel,
    values: Mapping[int, Array],
    states: Sequence[Array],
    rows: list[list[Array]],
) -> list[Array]:
    """Runs the inferences of one graph and returns the last states; the graph is then freed."""
    n_inputs = len(values) + len(states)
    if len(model.inputs) != n_inputs:
        raise BadArtifactError(
            f"the file takes {len(model.inputs)} inputs, {n_inputs} are stored",
            "export the model again",
        )
    shapes = [spec.shape for k, spec in enumerate(model.inputs) if k not in values]
    last = [np.resize(state, shape) for state, shape in zip(states, shapes, strict=True)]
    for number in range(len(next(iter(values.values())))):
        results, last = _run(model, {k: each[number] for k, each in values.items()}, last)
        rows.append(results)
    return last


def _phases(
    stored: Stored, execution: Execution, is_state: Sequence[bool]
) -> Iterator[tuple[str, Execution]]:
    """The graphs of the file: one, or that of the prompt and that of a step."""
    workload = execution.workload
    if "step_0" not in stored:
        yield "input", execution
        return
    prompt = Workload(kind=WorkloadKind.PREFILL, length=workload.length)
    yield "input", replace(execution, workload=prompt)
    inputs = tuple(
        one if is_state[k] else replace(one, shape=stored[f"step_{k}"].shape[1:])
        for k, one in enumerate(execution.inputs)
    )
    step = Workload(kind=WorkloadKind.DECODE, length=workload.context_tokens)
    yield "step", replace(execution, workload=step, inputs=inputs)


def _run(
    model: LoadedModel, values: Mapping[int, Array], states: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """One inference: its outputs without states, and its states, which are the last outputs."""
    rest = iter(states)
    arrays = []
    for number, spec in enumerate(model.inputs):
        array = values[number] if number in values else next(rest)
        if array.shape != spec.shape:
            raise BadArtifactError(
                f"input {spec.name!r} has the shape {spec.shape}, the stored one {array.shape}",
                "export the model again",
            )
        arrays.append(np.array(array, dtype=spec.dtype))
    model.set_inputs(arrays)
    run_once(model)
    outputs = model.outputs()
    n_results = len(outputs) - len(states)
    if n_results < 1:
        raise BadArtifactError(
            f"the file has {len(outputs)} outputs, of which {len(states)} should be states",
            "export the model again",
        )
    return outputs[:n_results], outputs[n_results:]
