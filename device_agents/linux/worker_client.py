"""Runs tasks in a worker process on this host and turns every outcome into an answer."""

import re
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

from fleetrank.device_agents.confinement.walls import confinement_of
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.failures import (
    LOST_REMEDY,
    MEMORY_REMEDY,
    TAIL_CHARACTERS,
    failure_from_error,
    interrupted,
    says_device_lost,
)
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed, utc_now
from fleetrank.device_agents.contract.protocol import (
    STAGE_MARK,
    TURN_MARK,
    InferReply,
    Turn,
    encode_request,
)
from fleetrank.device_agents.contract.reply import read_reply, read_turn_report
from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.linux.conditions import read_oom_kills
from fleetrank.device_agents.linux.control_groups import default_limit_bytes
from fleetrank.device_agents.linux.scratch import worker_environment
from fleetrank.foundation.codec import CodecError, from_json, parse_json
from fleetrank.foundation.errors import says_out_of_memory
from fleetrank.foundation.supervised_child import (
    ChildEnd,
    End,
    SupervisedChild,
    exit_name,
    run_child,
)
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.vocabulary import ErrorKind

WORKER = (sys.executable, "-P", "-m", "fleetrank.device_agents.worker")
"""`-P` removes the working directory from the path: a workspace folder cannot hide a package."""
_MARK = TURN_MARK.encode()
Task = TypeVar("Task", MeasureTask, InferTask)
_STAGE = re.compile(rf"^{STAGE_MARK} (\w+)\n?", re.MULTILINE | re.ASCII)


def limited(task: Task) -> Task:
    """Limits memory: a model that uses all memory must fail alone and not stop the host."""
    if task.limits.memory_limit_bytes is not None:
        return task
    limits = replace(task.limits, memory_limit_bytes=default_limit_bytes())
    return replace(task, limits=limits)


def measure_in_worker(
    task: MeasureTask,
    stop_requested: StopRequested = never_stop,
    *,
    command: Sequence[str] = WORKER,
) -> Measurement:
    """Measures one repeat in a fresh worker; never raises for a failure of the worker."""
    with ExitStack() as stack:
        worker = Worker(task, stop_requested)
        worker.start(stack, command)
        return worker.measurement


class Worker:
    """A process that measures one task.

    One cell of a round, and one process of a set, loads its model and then waits for its turns.

    Attributes:
        samples_ns: of each block that the worker reported.
        is_waiting: the worker sleeps until its next turn.
        has_ended: its process has ended, or could not be started.
        measurement: the answer, once the worker has ended.
    """

    def __init__(self, task: MeasureTask, stop_requested: StopRequested) -> None:
        self.task = task
        self._takes_turns = (task.blocks or task.execution.replicas) is not None
        self.samples_ns: list[tuple[int, ...]] = []
        self.is_waiting = self.has_ended = False
        self.measurement = failed(task.task_id, interrupted())
        self._stop_requested = stop_requested
        self._left_ns = int(task.limits.timeout_s * NS_PER_S)  # only its own turns count
        self._started = utc_now()
        self._oom_kills = read_oom_kills()

    @property
    def timed_ns(self) -> int:
        """Time of the samples so far."""
        return sum(sum(block) for block in self.samples_ns)

    def start(self, stack: ExitStack, command: Sequence[str]) -> None:
        """Starts the worker, and waits until it waits for its turn or has ended."""
        if self._stop_requested():
            return
        try:
            environment = stack.enter_context(worker_environment(self.task))
            self._child = SupervisedChild(command, environment=environment)
        except OSError as error:
            self.has_ended = True
            self._fail(_not_started(error))
            return
        stack.callback(self._child.end)
        self._send(encode_request(self.task))
        self.hear()

    @property
    def pid(self) -> int:
        """The process id; only of a worker that waits."""
        return self._child.pid

    def answer(self, turn: Turn) -> None:
        """Answers a worker that waits, and waits for its next report or its end."""
        if self.is_waiting:
            self.tell(turn)
            self.hear()

    def tell(self, turn: Turn) -> None:
        """Answers a worker that waits, and returns at once; `hear` must follow."""
        self._send(turn)

    def _send(self, line: str) -> None:
        self.is_waiting = False
        self._begin_ns = time.perf_counter_ns()
        self._child.send(f"{line}\n".encode())

    def hear(self) -> None:
        """Waits for the next report of the worker, or for its end."""
        end = self._child.wait(
            deadline_ns=self._begin_ns + self._left_ns,
            stop_requested=self._stop_requested,
            is_complete=_is_report if self._takes_turns else _is_never_complete,
        )
        self._left_ns -= time.perf_counter_ns() - self._begin_ns
        if end is End.COMPLETE:
            self._take_report()
        else:
            self._take_end(end)

    def _take_report(self) -> None:
        text = self._child.stdout[len(_MARK) :].decode(errors="replace")
        self._child.stdout.clear()
        try:
            report = read_turn_report(text)
        except CodecError as error:
            self._fail(_bad_output(self._ended(End.ITSELF), error.message))
            return
        if report.block is not None:
            self.samples_ns.append(report.samples_ns)
        self.is_waiting = True

    def _take_end(self, end: End) -> None:
        ended = self._ended(end)
        oom_kills = _oom_kills_since(self._oom_kills)
        self.measurement = read_measurement(self.task, ended, self._started, oom_kills)

    def _ended(self, end: End) -> ChildEnd:
        self.has_ended = True
        return self._child.ended(end, self.task.limits.timeout_s)

    def _fail(self, failure: Failure) -> None:
        self.measurement = failed(self.task.task_id, failure, started_utc=self._started)


def _oom_kills_since(before: int | None) -> int | None:
    """Processes killed for lack of memory since an earlier count; `None` if either is unknown."""
    now = read_oom_kills()
    return None if before is None or now is None else now - before


def _is_report(received: bytearray) -> bool:
    return received.startswith(_MARK) and received.endswith(b"\n")


def _is_never_complete(_received: bytearray) -> bool:
    return False


def infer_in_worker(
    task: InferTask,
    stop_requested: StopRequested = never_stop,
    *,
    command: Sequence[str] = WORKER,
) -> Failure | None:
    """Runs the artifact over stored inputs in a fresh worker; `None` means success."""
    oom_kills = read_oom_kills()
    try:
        with worker_environment(task) as environment:
            end = run_child(
                command,
                encode_request(task),
                timeout_s=task.limits.timeout_s,
                stop_requested=stop_requested,
                environment=environment,
            )
    except OSError as error:
        return _not_started(error)
    if not _has_result(end):
        return _failure_from_end(end, _oom_kills_since(oom_kills))
    try:
        return from_json(InferReply, end.stdout).failure
    except CodecError as error:
        return _bad_output(end, error.message)


def read_measurement(
    task: MeasureTask, end: ChildEnd, started: str, oom_kills: int | None
) -> Measurement:
    """The answer of a worker that has ended; without a valid one, a failed measurement.

    Args:
        task: what it was asked.
        end: its end.
        started: when it was started, by the clock of this process.
        oom_kills: processes that the kernel killed for lack of memory in that time; `None` if
            unknown.
    """
    if not _has_result(end):
        failure = _failure_from_end(end, oom_kills)
        return failed(task.task_id, failure, started_utc=started)
    try:
        found = read_reply(parse_json(end.stdout), task)
    except CodecError as error:
        failure = _bad_output(end, error.message)
        return failed(task.task_id, failure, started_utc=started)
    # Facts of this process: the worker runs the file, which could state others.
    worker = found.worker and replace(found.worker, confinement=confinement_of(task))
    return replace(found, worker=worker, started_utc=started, finished_utc=utc_now())


def _has_result(end: ChildEnd) -> bool:
    return end.end is End.ITSELF and end.exit_code == 0 and end.stdout.strip() != ""


def _not_started(error: OSError) -> Failure:
    """The process cannot start: the host lacks memory, processes or descriptors now."""
    failure = failure_from_error(error, "start")
    return replace(
        failure,
        kind=ErrorKind.DEVICE_LOST if failure.kind is ErrorKind.INTERNAL else failure.kind,
        remedy="free memory and processes on this host",
        is_transient=True,
    )


def _failure_from_end(end: ChildEnd, oom_kills: int | None) -> Failure:
    """Describes a worker that ended without a result."""
    stage = last_stage(end.stderr)
    kind, message, remedy, is_transient = _judge_end(
        end, f" in stage {stage}" if stage else "", oom_kills
    )
    tail = _STAGE.sub("", end.stderr).strip()[-TAIL_CHARACTERS:]
    return Failure(
        kind=kind,
        message=f"{message}; last output: {tail}" if tail else message,
        remedy=remedy,
        is_transient=is_transient,
        stage=stage,
        exit_code=end.exit_code,
    )


def _bad_output(end: ChildEnd, why: str) -> Failure:
    """Describes a worker that ended normally but whose output is not its result."""
    return Failure(
        kind=ErrorKind.BAD_OUTPUT,
        message=f"the worker's output is not a result: {why}",
        remedy="check that worker and agent are the same version of fleetrank",
        is_transient=False,
        stage=last_stage(end.stderr),
        exit_code=end.exit_code,
    )


def last_stage(stderr: str) -> str | None:
    """The last stage that the worker reported before it ended."""
    found = _STAGE.findall(stderr)
    return found[-1] if found else None


def _judge_end(
    end: ChildEnd, where: str, oom_kills: int | None
) -> tuple[ErrorKind, str, str, bool]:
    """Returns kind, message, remedy, and whether a retry makes sense."""
    if end.end is End.STOP:
        return ErrorKind.INTERRUPTED, f"stopped on request{where}", "resume the sweep", True
    if end.end is End.TIME_LIMIT:
        remedy = "raise timeout_s of the sweep, or remove the model from the sweep"
        return ErrorKind.TIMED_OUT, f"no result after {end.timeout_s:g} s{where}", remedy, False
    if end.end is End.TOO_MUCH_OUTPUT:
        remedy = "look for a library that prints without limit"
        return ErrorKind.BAD_OUTPUT, f"the worker wrote too much{where}", remedy, False
    if end.exit_code == 0:
        remedy = "check that worker and agent are the same version of fleetrank"
        return ErrorKind.BAD_OUTPUT, f"the worker ended without a result{where}", remedy, False
    return _judge_crash(end, where, oom_kills)


def _judge_crash(
    end: ChildEnd, where: str, oom_kills: int | None
) -> tuple[ErrorKind, str, str, bool]:
    if says_device_lost(end.stderr):
        return ErrorKind.DEVICE_LOST, f"the device was lost{where}", LOST_REMEDY, True
    if says_out_of_memory(end.stderr):
        return ErrorKind.OUT_OF_MEMORY, f"an allocation failed{where}", MEMORY_REMEDY, False
    if end.exit_code != -signal.SIGKILL:
        remedy = "the runtime or the file may be defective; try another version of either"
        return (
            ErrorKind.CRASHED,
            f"the worker ended with {exit_name(end.exit_code)}{where}",
            remedy,
            False,
        )
    if oom_kills:
        remedy = "free memory on this host, or set a memory limit for the sweep"
        return ErrorKind.OUT_OF_MEMORY, f"killed for lack of memory{where}", remedy, True
    remedy = "find out which program kills processes on this host; the repeat can be retried"
    return ErrorKind.CRASHED, f"the worker was killed by SIGKILL{where}", remedy, True
