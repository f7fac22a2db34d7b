"""Runs tasks in a worker process on this host and turns every outcome into an answer."""

from collections.abc import Sequence
from dataclasses import replace

from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.codec import from_json
from fleetrank.device_agents.contract.failures import (
    End,
    WorkerEnd,
    bad_output,
    failure_from_end,
    failure_from_error,
    interrupted,
)
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed, utc_now
from fleetrank.device_agents.contract.protocol import InferReply, encode_request
from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.host.process import WORKER, run_worker
from fleetrank.device_agents.host.scratch import worker_environment
from fleetrank.foundation.vocabulary import ErrorKind, Origin


def measure_in_worker(
    task: MeasureTask,
    stop_requested: StopRequested = never_stop,
    *,
    command: Sequence[str] = WORKER,
) -> Measurement:
    """Measures one repeat in a fresh worker; never raises for a failure of the worker."""
    started = utc_now()
    if stop_requested():
        return _failed(task, interrupted(), started)
    try:
        with worker_environment(task) as environment:
            end = run_worker(
                encode_request(task),
                timeout_s=task.timeout_s,
                stop_requested=stop_requested,
                command=command,
                environment=environment,
            )
    except OSError as error:
        return _failed(task, _not_started(error), started)
    return _read_measurement(task, end, started)


def infer_in_worker(task: InferTask, *, command: Sequence[str] = WORKER) -> Failure | None:
    """Runs the artifact over stored inputs in a fresh worker; `None` means success."""
    try:
        with worker_environment(task) as environment:
            end = run_worker(
                encode_request(task),
                timeout_s=task.timeout_s,
                command=command,
                environment=environment,
            )
    except OSError as error:
        return _not_started(error)
    if not _has_result(end):
        return failure_from_end(end)
    try:
        return from_json(InferReply, end.stdout).failure
    except PermanentError as error:
        return bad_output(end, error.message)


def _read_measurement(task: MeasureTask, end: WorkerEnd, started: str) -> Measurement:
    if not _has_result(end):
        return _failed(task, failure_from_end(end), started)
    try:
        measurement = from_json(Measurement, end.stdout)
    except PermanentError as error:
        return _failed(task, bad_output(end, error.message), started)
    if measurement.task_id != task.task_id:
        why = f"it answers task {measurement.task_id!r}, not {task.task_id!r}"
        return _failed(task, bad_output(end, why), started)
    return measurement


def _has_result(end: WorkerEnd) -> bool:
    return end.end is End.ITSELF and end.exit_code == 0 and end.stdout.strip() != ""


def _failed(task: MeasureTask, failure: Failure, started: str) -> Measurement:
    return failed(task.task_id, failure, Origin.MEASURED, started)


def _not_started(error: OSError) -> Failure:
    """The process cannot start: the host lacks memory, processes or descriptors now."""
    failure = failure_from_error(error, "start")
    return replace(
        failure,
        kind=ErrorKind.DEVICE_LOST if failure.kind is ErrorKind.INTERNAL else failure.kind,
        remedy="free memory and processes on this host",
        is_transient=True,
    )
