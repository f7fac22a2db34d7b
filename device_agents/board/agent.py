"""The agent of a Linux board that is reached over ssh.

It gives tasks to the board's host, which runs `CpuAgent` or `CudaAgent` there, and waits for its
answers. If the line is cut, that host measures to the end and keeps what was not fetched.
"""

import contextlib
import math
import secrets
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from fleetrank.device_agents.board.board_files import files_of
from fleetrank.device_agents.board.board_inference import infer_there
from fleetrank.device_agents.board.board_link import (
    FOLDER,
    START,
    BoardLink,
    connection_to,
    lacking,
    no_result,
)
from fleetrank.device_agents.board.board_probe import probe_board, to_device_facts
from fleetrank.device_agents.board.board_state import (
    TURN_S,
    BoardOptions,
    read_options,
    require_identity,
)
from fleetrank.device_agents.board.host_calls import device_there
from fleetrank.device_agents.board.ssh_text import NoConnectionError
from fleetrank.device_agents.canary import CANARY_LIMIT_S
from fleetrank.device_agents.contract.agent import DeviceFacts, StopRequested, never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS, why_unsupported_on_gpu
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed, utc_now
from fleetrank.device_agents.contract.reply import read_reply
from fleetrank.device_agents.contract.task import (
    Execution,
    InferTask,
    MeasureTask,
    OptionValue,
    sweep_of,
)
from fleetrank.device_agents.errors import (
    HOST_PATIENCE_S,
    StoppedError,
    StorageFullError,
    TimedOutError,
    TransientError,
    host_in_use,
)
from fleetrank.device_agents.hosts.files import with_places
from fleetrank.device_agents.hosts.messages import DeviceTask, PollRequest
from fleetrank.device_agents.linux.bare_client import PROGRAM, arguments_of, samples_of
from fleetrank.device_agents.linux.replica_client import longest_s
from fleetrank.device_agents.runtimes.runner import why_unsupported
from fleetrank.foundation.codec import CodecError, Json
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import Use, host_lease
from fleetrank.foundation.vocabulary import Runtime

BESIDE_S = 900.0
"""For all steps beside the repeat: a push of a gigabyte at 2 MB/s takes 500 s."""
_MARGIN_S = 30.0
"""For the board's part around the worker: its time limit is kept there."""
_QUIET_LOOK_S = 5.0
"""The board looks for a second at what else runs there, if the sweep wants a quiet host."""
_PAUSE_S = 2.0
"""Between two attempts to connect again; each can take seconds by itself."""


class BoardRepeat:
    """Measures one task, or those of a round; every failure is raised as a `FleetError`.

    To the board's host each of its devices is a separate sweep, so no other gets its answers.
    """

    def __init__(
        self,
        link: BoardLink,
        options: BoardOptions,
        tasks: Sequence[MeasureTask],
        stop: StopRequested = never_stop,
        finish: StopRequested = never_stop,
    ) -> None:
        """Takes the tasks.

        Args:
            link: to the board.
            options: of its device.
            tasks: with paths of this host.
            stop: whether the user ends the repeat.
            finish: whether the user ends a round.
        """
        self._link = link
        self._options = options
        self._stop = stop
        self._finish = finish
        self._spec = device_there(options)
        self._sweep = f"{self._spec.name}:{sweep_of(tasks[0].task_id)}"
        self._mark = f"{self._sweep}/"
        self._files = {path: file for task in tasks for path, file in files_of(task).items()}
        self._members = tuple(self._mark + task.task_id for task in tasks)
        self._tasks = [self._on_board(task) for task in tasks]
        self._session = secrets.token_hex(8)
        self._is_finishing = False

    def measure(self) -> list[Measurement]:
        """Gives the tasks to the board; one measurement per task, in their order.

        Raises:
            FleetError: what went wrong, with its remedy.
        """
        if self._stop():
            raise _stopped()
        try:
            self._give()
            answers = self._wait()
        except StoppedError:
            with contextlib.suppress(TransientError):
                self._link.call("interrupt", self._sweep)
            raise
        # If that is lost, the board forgets the answers after others.
        with contextlib.suppress(TransientError):
            self._poll(0.0, self._members)
        return [self._answer(answers[task.task_id], task) for task in self._tasks]

    def _on_board(self, task: MeasureTask) -> MeasureTask:
        there = with_places(task, self._files.__getitem__)
        return replace(there, task_id=self._mark + task.task_id, members=self._members)

    def _give(self) -> None:
        """Gives the tasks to the board, with the files that it lacks."""
        orders = tuple(DeviceTask(spec=self._spec, task=task) for task in self._tasks)

        def missing() -> Mapping[str, Path]:
            reply = self._link.call("accept", orders, stop_requested=self._stop)
            return lacking(reply, self._files)

        if files := missing():
            _send(self._link, files, self._sweep, self._stop)
            if missing():
                said = "the board has no room for all files of this repeat"
                raise StorageFullError(said, "free some space there")

    def _wait(self) -> Mapping[str, Json]:
        """Polls until every task is answered."""
        answers: dict[str, Json] = {}
        boot = self._link.boot
        ends_s = time.monotonic() + TURN_S + _limit_s(self._tasks)
        while missing := {*self._members} - answers.keys():
            found, running = _news(self._connected(max(0.0, ends_s - time.monotonic())))
            answers |= {name: found[name] for name in missing & found.keys()}
            missing -= answers.keys()
            if missing - running:
                what = "the host on the board has ended"
                what = what if self._link.boot == boot else "the board restarted"
                raise TransientError(
                    f"{what} during the repeat, which ended with it",
                    "check the board's power supply and its free memory",
                )
            if missing and time.monotonic() >= ends_s:
                self._link.call("interrupt", self._sweep)
                raise TimedOutError(
                    f"{self._link.host} did not measure within the time limit",
                    "check that the board does not hang",
                )
        return answers

    def _connected(self, wait_s: float) -> Json:
        """The reply to a poll; a line that was cut is opened again.

        Raises:
            TransientError: it cannot be opened for a while.
        """
        until_s = math.inf
        while True:
            try:
                return self._poll(wait_s)
            except NoConnectionError as error:
                # A reply may be lost: in a new session all is offered again.
                self._session = secrets.token_hex(8)
                until_s = min(until_s, time.monotonic() + self._options.reconnect_s)
                if self._stop() or time.monotonic() >= until_s:
                    raise TransientError(error.message, error.remedy) from error
                time.sleep(_PAUSE_S)

    def _poll(self, wait_s: float, acknowledged: tuple[str, ...] = ()) -> Json:
        request = PollRequest(
            sweep_id=self._sweep, session=self._session, acknowledged=acknowledged, wait_s=wait_s
        )
        limit_s = wait_s + _MARGIN_S
        return self._link.call("poll", request, timeout_s=limit_s, stop_requested=self._is_over)

    def _is_over(self) -> bool:
        """Whether the user ends the repeat; reports to the board once that a round ends."""
        if not self._is_finishing and self._finish():
            self._link.call("finish_rounds", self._sweep)
            self._is_finishing = True
        return self._stop()

    def _answer(self, plain: Json, task: MeasureTask) -> Measurement:
        """The answer to one task of a round; one that is not valid fails alone."""
        task_id = task.task_id.removeprefix(self._mark)
        try:
            found = read_reply(plain, task)
        except CodecError as error:
            failure = failure_from_error(no_result(error.message), None)
            return failed(task_id, failure)
        round_id = found.round_id and found.round_id.removeprefix(self._mark)
        found = replace(found, task_id=task_id, round_id=round_id)
        if found.worker is None or not task.is_trusted:
            return found
        return replace(found, worker=replace(found.worker, confinement=None))


def _send(link: BoardLink, files: Mapping[str, Path], user: str, stop: StopRequested) -> None:
    # Encryption at full speed would disturb a measurement on this host's processor.
    purpose = f"{user}, which sends a file to {link.host}"
    with host_lease(
        purpose, use=Use.BESIDE, give_up=stop, limit_s=HOST_PATIENCE_S, busy=host_in_use
    ) as is_held:
        if not is_held:
            raise _stopped()
        for name, path in files.items():
            link.send(path, name, stop)


def _news(plain: Json) -> tuple[Mapping[str, Json], Set[str]]:
    """Answers by task, which the caller checks, and the tasks in flight, of a `PollReply`.

    Raises:
        BadOutputError: it is none.
    """
    match plain:
        case {"measurements": [*answers], "running": [*running]}:
            found = {str(one.get("task_id")): one for one in answers if isinstance(one, dict)}
            return found, {str(one[0]) for one in running if isinstance(one, list)}
    raise no_result("it does not contain news of tasks")


def _limit_s(tasks: Sequence[MeasureTask]) -> float:
    """The longest time there, with what the board's own agent waits for a quiet moment."""
    canary_s = 0.0 if tasks[0].canary is None else 2 * CANARY_LIMIT_S
    return sum(map(longest_s, tasks)) + _QUIET_LOOK_S + canary_s


def _stopped() -> StoppedError:
    return StoppedError("the measurement was stopped on request", "resume the sweep")


class BoardAgent:
    """The `board` device kind; its options are those of `BoardOptions`."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Reads the options; the board is not contacted before the first call."""
        self._options = read_options(options)
        self._link = BoardLink(connection_to(self._options), self._options.python)

    def probe(self) -> DeviceFacts:
        """Describes the board, and checks that it is the registered one."""
        probe = probe_board(self._link, self._options, tries_libraries=False)
        require_identity(self._options, probe.identity)
        return to_device_facts(probe, self._options)

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why this board cannot execute this, or `None` when it can."""
        has_gpu = self._options.gpu is not None
        if execution.backend in GPU_BACKENDS and not has_gpu:
            return (
                "this device is the board's processor: register its GPU as a device too, with "
                "another name and the option gpu=UUID"
            )
        runtimes, cpus = self._options.found_runtimes, self._options.cpus
        runtime = execution.runtime.value
        if execution.runtime not in set(Runtime):
            return f"a board has fleetrank's own runtimes only, not {runtime}"
        if runtimes is not None and runtime not in runtimes:
            return (
                f"the board was registered without {runtime}; run `fleetrank devices add` with "
                f"`ssh={self._options.ssh}` and `setup={runtime}`"
            )
        if cpus is not None and execution.threads > cpus:
            return (
                f"{execution.threads} threads need more than the board's {cpus} CPUs: "
                f"set `threads` to {cpus} at most"
            )
        return why_unsupported_on_gpu(execution) if has_gpu else why_unsupported(execution)

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time of `measure`: the board can be in use, and the line can be cut."""
        own_s = 2 * longest_s(task) + 2 * TURN_S + self._options.reconnect_s + BESIDE_S
        return own_s if task.canary is None else own_s + 4 * CANARY_LIMIT_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat; its times are of this host's clock, the board's may be wrong."""
        (answer,) = self.measure_round([replace(task, blocks=None)], stop_requested)
        return answer

    def measure_round(
        self,
        tasks: Sequence[MeasureTask],
        stop_requested: StopRequested = never_stop,
        finish_requested: StopRequested = never_stop,
    ) -> Sequence[Measurement]:
        """Measures one repeat of each task in turns; the board itself gives the turns."""
        started = utc_now()
        try:
            repeat = BoardRepeat(self._link, self._options, tasks, stop_requested, finish_requested)
            found = repeat.measure()
        except (FleetError, OSError) as error:
            failure = failure_from_error(error, "start")
            found = [failed(task.task_id, failure) for task in tasks]
        finished = utc_now()
        return [
            replace(
                one,
                failure=self._patient(one.failure),
                started_utc=started,
                finished_utc=finished,
            )
            for one in found
        ]

    def measure_bare(self, task: MeasureTask) -> tuple[int, ...]:
        """Measures by the board's Python and the runtime's library alone, over plain ssh."""
        files = files_of(task)
        reply = self._link.call("missing", tuple(files.values()))
        if missing := lacking(reply, files):
            _send(self._link, missing, "a bare run", never_stop)
        # Only the board knows the name of its host's folder.
        argument = arguments_of(task, f"{FOLDER}/host-*/files/{files[task.artifact_path]}")
        program = PROGRAM.read_bytes()
        end = connection_to(self._options).run(
            (self._options.python, "-c", START, str(len(program)), argument),
            sent=(program,),
            timeout_s=task.limits.timeout_s,
        )
        return samples_of(end)

    def _patient(self, failure: Failure | None) -> Failure | None:
        """The failure with the patience of this board's file."""
        if failure is None or failure.wait is None:
            return failure
        return replace(failure, wait=replace(failure.wait, limit_s=self._options.max_wait_s))

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the file on the board over stored inputs; fetches its outputs."""
        try:
            return infer_there(
                self._link,
                device_there(self._options),
                task,
                self._options.max_wait_s,
                stop_requested,
            )
        except (FleetError, OSError) as error:
            return failure_from_error(error, "start")
