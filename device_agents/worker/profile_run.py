"""A repeat that finds out where the time goes, instead of measuring a latency."""

import time
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.profiling.profiled_runs import profile_runs
from fleetrank.device_agents.profiling.profiler import PROFILERS, why_not_profiled
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.worker.artifact_checks import (
    admitted,
    check_batch,
    check_unchanged,
    run_once,
)
from fleetrank.device_agents.worker.run import Stage, facts_of
from fleetrank.foundation.vocabulary import Origin, Status

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls


def profile(
    task: MeasureTask, inherited: WorkerFacts, enter: Stage, walls: "Walls | None"
) -> Measurement:
    """Profiles the file of a task.

    Raises:
        LostArtifactError: the file is missing or has changed.
        UnsupportedError: the runtime reports no times of kernels.
        BadOutputError: its profile cannot be read.
    """
    enter("start")
    reason = why_not_profiled(task.execution)
    if reason is not None:
        raise UnsupportedError(reason, "profile it in another runtime, such as onnx")
    profiler = PROFILERS.load(task.execution.runtime)()
    path, state = admitted(profiler.runner, task)
    if walls is not None:
        walls.arm(profiler.runner.library.module)
    enter("load")
    start = time.perf_counter_ns()
    model = profiler.load(path, task.execution)
    load_ns = time.perf_counter_ns() - start
    if not task.execution.inputs:
        check_batch(model.inputs, task.execution.batch)
    enter("first_inference")
    model.set_inputs(make_inputs(model.inputs, task.seed))
    run_once(model)
    check_unchanged(task.artifact_path, state)
    enter("timed")
    found = profile_runs(profiler, model, task.policy)
    return Measurement(
        task_id=task.task_id,
        status=Status.OK,
        origin=Origin.MEASURED,
        load_ns=load_ns,
        profile=found,
        worker=facts_of(inherited, profiler.runner, model.settings, walls),
    )
