"""The measuring protocol inside the worker: prime, load, first inference, warm up, time."""

import gc
import logging
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetrank.device_agents.comparison import has_nan
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts, failed
from fleetrank.device_agents.contract.plugin_backends import plugin_of
from fleetrank.device_agents.contract.runtime import (
    CountingRunner,
    LoadedModel,
    PlacedModel,
    Products,
    Runner,
)
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.flags import Seen, judge
from fleetrank.device_agents.linux.conditions import Shares
from fleetrank.device_agents.linux.worker_process import growth_bytes
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.runner import copies_state, create_runner
from fleetrank.device_agents.timing import collection_off
from fleetrank.device_agents.worker.artifact_checks import (
    admitted,
    check_batch,
    check_unchanged,
    run_once,
)
from fleetrank.device_agents.worker.run import (
    Caller,
    Loaded,
    Ran,
    Stage,
    SystemUse,
    facts_of,
    idle_energy,
    run_loaded,
)
from fleetrank.device_agents.worker.watch import Watch, open_watch
from fleetrank.foundation.vocabulary import INTEGERS, Mode, Origin, SampleKind, Status

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls

_LOG = logging.getLogger(__name__)
CONDITIONS_WINDOW_S = 0.25
"""Time this process idles to measure other processes: 25 ticks per core, so 2 to 4 % resolution."""


def measure(
    task: MeasureTask, inherited: WorkerFacts, caller: Caller, walls: "Walls | None"
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
        if task.execution.is_profiled:
            from fleetrank.device_agents.worker.profile_run import profile

            measurement = profile(task, inherited, note, walls)
        else:
            measurement = _measure(task, inherited, replace(caller, enter=note), walls)
        if walls is not None:
            walls.check()
    except Exception as error:  # every task must become a stored row
        cause = error if walls is None else walls.cause(error)
        measurement = failed(task.task_id, failure_from_error(cause, stage))
    return measurement


def _measure(
    task: MeasureTask, inherited: WorkerFacts, caller: Caller, walls: "Walls | None"
) -> Measurement:
    caller.enter("start")
    watch = open_watch(task)
    before = watch.conditions(_idle_shares())
    runner = create_runner(task.execution.runtime)
    path, state = admitted(runner, task)
    _prime(runner, task, caller.enter)
    if walls is not None:
        walls.arm(runner.library.module)
    loaded = _load(runner, replace(task, artifact_path=path), watch, caller.enter)
    check_unchanged(task.artifact_path, state)
    with collection_off():
        ran = run_loaded(loaded, task, watch, before, caller)
    found = _products(runner, path, task.execution)
    settings = (*loaded.model.settings, *watch.settings())
    facts = facts_of(inherited, runner, settings, walls)
    facts = replace(facts, involuntary_switches=ran.timed.involuntary_switches)
    measured = _compose(task, watch, loaded, ran, facts)
    if found is not None:
        measured = replace(measured, integer_products=found.of_integers, products=found.all)
    if isinstance(loaded.model, PlacedModel):
        placed = loaded.model.placed
        measured = replace(
            measured, backend_nodes=placed.backend_nodes, graph_nodes=placed.graph_nodes
        )
    if task.check_path is None:
        return measured
    from fleetrank.device_agents.worker.infer import compare_with_network

    caller.enter("verify")
    alike = compare_with_network(loaded.model, task.check_path, task.execution)
    return replace(measured, snr_db=alike.snr_db, top1_agreement=alike.top1_agreement)


def _products(runner: Runner, path: str, execution: Execution) -> Products | None:
    """Of a file with integers, counted after its runs because that takes memory.

    `None` if they cannot be counted: the samples are good all the same.

    Raises:
        UnsupportedError: not one of them computes with integers.
    """
    if execution.precision not in INTEGERS or not isinstance(runner, CountingRunner):
        return None
    try:
        found = runner.products(path, execution)
    except Exception:  # runtimes raise many classes; a graph above 2 GiB cannot be written
        _LOG.exception("the products of the file could not be counted")
        return None
    if found is not None and found.all and not found.of_integers:
        raise UnsupportedError(
            f"0 of {found.all} products of this {execution.precision} file compute with integers",
            f"{execution.runtime} has no such kernels here: export it by another recipe, or "
            "measure fp32",
        )
    return found


def _prime(runner: Runner, task: MeasureTask, enter: Stage) -> None:
    """Counts lazy imports and pools for a tiny artifact instead of the model."""
    if task.primer_path is None:
        return
    enter("prime")
    # The primer is made at batch 1, and compiling it would cost more than it saves.
    execution = replace(task.execution, mode=Mode.EAGER, batch=1, inputs=())
    # A plugin may take no node of so small a file; its library is loaded all the same.
    with suppress(UnsupportedError) if plugin_of(execution.backend) else nullcontext():
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
        from fleetrank.device_agents.worker.generation import sequence_runs

        sequences = sequence_runs(model, task)
    start = time.perf_counter_ns()
    run_once(model)
    first_ns = time.perf_counter_ns() - start
    seen = Measurement(
        task_id=task.task_id,
        status=Status.OK,
        origin=Origin.MEASURED,
        load_ns=load_ns,
        first_inference_ns=first_ns,
        baseline_memory_bytes=baseline,
        load_peak_memory_bytes=growth_bytes(baseline, watch.peak_bytes()),
    )
    return Loaded(model=model, seen=seen, source=source, idle=idle, sequences=sequences)


def _compose(
    task: MeasureTask, watch: Watch, loaded: Loaded, ran: Ran, facts: WorkerFacts
) -> Measurement:
    sequences = ran.timed.sequences
    seen = Seen(
        samples_ns=ran.seen.samples_ns if sequences is None else sequences.medians_ns,
        n_runs=len(ran.seen.samples_ns),
        observed_ns=sum(ran.seen.samples_ns) + sum(sequences.prompts_ns if sequences else ()),
        copies_state=copies_state(loaded.model),
        has_loop_overhead=sequences is not None and sequences.has_overhead,
        has_nan=_has_nan(loaded.model),
        device_samples_ns=ran.seen.device_samples_ns,
        is_warmup_stable=ran.is_warmup_stable,
        involuntary_switches=facts.involuntary_switches,
        niceness=facts.niceness,
        has_met_quota=ran.timed.n_throttled > 0,
        before=ran.seen.conditions_before,
        after=ran.seen.conditions_after,
    )
    has_memory = ran.seen.run_peak_memory_bytes is not None
    return replace(
        ran.seen,
        sample_kind=SampleKind.PER_INFERENCE if sequences is None else SampleKind.PER_TOKEN,
        ttft_samples_ns=None if sequences is None else sequences.prompts_ns,
        memory_metric=watch.memory_metric if has_memory else None,
        reserved_memory_bytes=watch.reserved_bytes(),
        process_memory_bytes=watch.process_bytes(),
        worker=facts,
        flags=judge(seen, task.policy if loaded.sequences is None else loaded.sequences.policy),
    )


def _has_nan(model: LoadedModel) -> bool:
    """Whether an output of the last run holds a NaN, or no finite number.

    Looked at after all that is measured, because a copy of the outputs takes memory and empties
    caches.
    """
    try:
        return has_nan(model.outputs())
    except Exception:  # a type that NumPy lacks, or too little memory: the samples are good
        _LOG.exception("the outputs could not be looked at")
        return False


def _idle_shares() -> Shares:
    use = SystemUse()
    use.begin()
    time.sleep(CONDITIONS_WINDOW_S)
    use.end()
    return use.shares()
