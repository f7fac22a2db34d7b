"""Measures on one Linux board over ssh, one fresh worker process per task.

The board does what `CpuAgent` does on its own host; this agent sends files and judges the board.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleetrank.device_agents.board.board_canary import CANARY_LIMIT_S, canary_ns, with_canary
from fleetrank.device_agents.board.board_files import (
    Prepared,
    files_of,
    no_result,
    prepare,
    texts,
    with_paths,
)
from fleetrank.device_agents.board.board_inference import infer_there
from fleetrank.device_agents.board.board_link import SHORT_S, BoardFile, BoardLink, Reply
from fleetrank.device_agents.board.board_probe import probe_board, to_device_facts
from fleetrank.device_agents.board.board_state import (
    BoardOptions,
    BoardState,
    parse_state,
    read_options,
    why_unfit,
    with_state,
)
from fleetrank.device_agents.board.ssh import SshConnection
from fleetrank.device_agents.board.ssh_text import NoConnectionError
from fleetrank.device_agents.contract.agent import DeviceFacts, StopRequested, never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS, why_unsupported_on_gpu
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed, utc_now
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.device_agents.contract.reply import read_reply
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.device_output import parse_throttled
from fleetrank.device_agents.errors import (
    HOST_PATIENCE_S,
    StoppedError,
    TransientError,
    host_in_use,
)
from fleetrank.device_agents.runtimes.runner import why_unsupported
from fleetrank.foundation.codec import CodecError, Json
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import Use, host_lease
from fleetrank.foundation.vocabulary import Runtime

BESIDE_S = 900.0
"""For all steps beside the repeat: a push of a gigabyte at 2 MB/s takes 500 s."""
TURN_S = 60.0
"""To wait there for another host's repeat; two hosts that only ask again could miss turns."""
_MARGIN_S = 30.0
"""For the board's part around the worker: its time limit is kept there."""
_QUIET_LOOK_S = 5.0
"""The board looks for a second at what else runs there, if the sweep wants a quiet host."""
_PAUSE_S = 2.0
"""Between two attempts to connect again; each can take seconds by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user can ask for while a repeat runs: `stop` ends it, `finish` ends a round."""

    stop: StopRequested = never_stop
    finish: StopRequested = never_stop


class BoardRepeat:
    """Measures one task, or those of a round; every failure is raised as a `FleetError`."""

    def __init__(
        self, link: BoardLink, options: BoardOptions, tasks: Sequence[MeasureTask], wishes: Wishes
    ) -> None:
        self._link = link
        self._options = options
        self._tasks = tasks
        self._wishes = wishes

    def measure(self) -> list[Measurement]:
        """Runs the steps; one measurement per task, in their order.

        Raises:
            FleetError: what went wrong, with its remedy.
        """
        if self._wishes.stop():
            raise StoppedError("the measurement was stopped on request", "resume the sweep")
        files = {path: file for task in self._tasks for path, file in files_of(task).items()}
        ready = self._prepare(files)
        there = [with_paths(task, ready.places) for task in self._tasks]
        reply = self._run(there, ready.boot)
        before, polled, after = _states(reply)
        bits = [found for text in polled if (found := parse_throttled(text)) is not None]
        return [with_state(one, before, bits, after) for one in self._answers(reply)]

    def _answers(self, reply: Reply) -> list[Measurement]:
        plain = reply.get("measurements")
        if not isinstance(plain, list):
            raise no_result("it has no measurements")
        if len(plain) != len(self._tasks):
            raise no_result("it is of other tasks")
        return [_answer(one, task) for one, task in zip(plain, self._tasks, strict=True)]

    @property
    def _turn_s(self) -> float:
        return min(self._options.max_wait_s, TURN_S)

    def _prepare(self, files: Mapping[str, BoardFile]) -> Prepared:
        """Checks identity and state of the board, and sends what it lacks."""
        ready = prepare(self._link, self._options.board_hash, files, self._wishes.stop)
        unfit = why_unfit(parse_state(ready.state), self._options)
        if unfit is not None:
            raise unfit
        if ready.lacking:
            self._push(ready)
        return ready

    def _push(self, ready: Prepared) -> None:
        # Encryption at full speed would disturb a measurement on this host's processor.
        purpose = f"{self._tasks[0].task_id}, which sends a file to {self._link.host}"
        with host_lease(
            purpose,
            use=Use.BESIDE,
            give_up=self._wishes.stop,
            limit_s=HOST_PATIENCE_S,
            busy=host_in_use,
        ) as is_held:
            if not is_held:
                raise StoppedError("the measurement was stopped on request", "resume the sweep")
            for file in ready.lacking:
                self._link.push(file, ready.names, self._turn_s, self._wishes.stop)

    def _run(self, there: Sequence[MeasureTask], boot: Json) -> Reply:
        wait_s, limit_s = self._turn_s, _limit_s(there)
        request = {
            "gpu": self._options.gpu_options,
            "tasks": [encode_request(task) for task in there],
            "task_id": there[0].task_id,
            "wait_s": wait_s,
        }
        try:
            return self._link.ask(
                "measure",
                request,
                timeout_s=wait_s + limit_s + _MARGIN_S,
                stop_requested=self._wishes.stop,
                finish_requested=self._wishes.finish,
            )
        except NoConnectionError as lost:
            return self._fetch(there[0].task_id, limit_s, boot, lost)

    def _fetch(self, task_id: str, limit_s: float, boot: Json, lost: NoConnectionError) -> Reply:
        """Connects again and takes the result if the board measured to the end.

        Raises:
            TransientError: it did not, or it cannot be reached.
        """
        deadline_s = time.monotonic() + self._options.reconnect_s
        while time.monotonic() < deadline_s and not self._wishes.stop():
            try:
                reply = self._link.ask(
                    "fetch",
                    {"task_id": task_id, "wait_s": limit_s},
                    timeout_s=limit_s + SHORT_S,
                    stop_requested=self._wishes.stop,
                )
            except NoConnectionError:
                time.sleep(_PAUSE_S)
                continue
            if "none" not in reply:
                return reply
            what = "the board restarted" if reply.get("boot") != boot else "the connection ended"
            raise TransientError(
                f"{what} during the repeat, which ended with it ({lost.message})",
                "check the board's power supply and its network",
            ) from lost
        raise TransientError(lost.message, lost.remedy) from lost


def _answer(plain: Json, task: MeasureTask) -> Measurement:
    """The answer to one task of a round; one that is not valid fails alone."""
    try:
        found = read_reply(plain, task)
    except CodecError as error:
        failure = failure_from_error(no_result(error.message), None)
        return failed(task.task_id, failure)
    if found.worker is None or not task.is_trusted:
        return found
    return replace(found, worker=replace(found.worker, confinement=None))


def _limit_s(tasks: Sequence[MeasureTask]) -> float:
    """The longest time there, with what the board's own agent waits for a quiet moment."""
    return sum(task.timeout_s for task in tasks) + _QUIET_LOOK_S


def _states(reply: Reply) -> tuple[BoardState, Sequence[str], BoardState]:
    state = reply.get("state")
    polled = state.get("polled") if isinstance(state, dict) else None
    if not isinstance(state, dict) or not isinstance(polled, list):
        raise no_result("it has no state")
    before, after = (parse_state(texts(state.get(name))) for name in ("before", "after"))
    return before, [str(one) for one in polled], after


class BoardAgent:
    """The `board` device kind; its options are those of `BoardOptions`."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Reads the options; the board is not contacted before the first call."""
        self._options = read_options(options)
        self._connection = SshConnection(self._options.target)

    def probe(self) -> DeviceFacts:
        """Describes the board, and checks that it is the registered one."""
        probe = probe_board(self._link("probe"), self._options, tries_libraries=False)
        probe.require(self._options.board_hash)
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
        own_s = 2 * task.timeout_s + 2 * TURN_S + self._options.reconnect_s + BESIDE_S
        return own_s if task.canary is None else own_s + 4 * CANARY_LIMIT_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat; its times are of this host's clock, the board's may be wrong."""
        (answer,) = self._measured([replace(task, blocks=None)], Wishes(stop=stop_requested))
        return answer

    def measure_round(
        self,
        tasks: Sequence[MeasureTask],
        stop_requested: StopRequested = never_stop,
        finish_requested: StopRequested = never_stop,
    ) -> Sequence[Measurement]:
        """Measures one repeat of each task in turns; the board itself gives the turns."""
        return self._measured(tasks, Wishes(stop=stop_requested, finish=finish_requested))

    def _measured(self, tasks: Sequence[MeasureTask], wishes: Wishes) -> list[Measurement]:
        started = utc_now()
        try:
            found = self._with_canary(tasks, wishes)
        except (FleetError, OSError) as error:
            failure = self._patient(failure_from_error(error, "start"))
            found = [failed(task.task_id, failure) for task in tasks]
        finished = utc_now()
        return [replace(one, started_utc=started, finished_utc=finished) for one in found]

    def _with_canary(self, tasks: Sequence[MeasureTask], wishes: Wishes) -> list[Measurement]:
        """Measures, with the canary where it is due; a canary that deviates is an error."""
        link, canary = self._link(tasks[0].task_id), tasks[0].canary

        def measure(*some: MeasureTask) -> list[Measurement]:
            return BoardRepeat(link, self._options, some, wishes).measure()

        def latency_ns(when: str) -> int | None:
            if canary is None or not getattr(canary, when):
                return None
            return canary_ns(canary, lambda one: measure(one)[0], self._options.canary_tolerance)

        before_ns = latency_ns("runs_before")
        found = measure(*tasks)
        after_ns = latency_ns("runs_after")
        return [with_canary(one, before_ns, after_ns) for one in found]

    def _patient(self, failure: Failure) -> Failure:
        """The failure with the patience of this board's file."""
        if failure.wait is None:
            return failure
        return replace(failure, wait=replace(failure.wait, limit_s=self._options.max_wait_s))

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the file on the board over stored inputs; fetches its outputs."""
        try:
            return infer_there(self._link(task.task_id), self._options, task, stop_requested)
        except (FleetError, OSError) as error:
            return failure_from_error(error, "start")

    def _link(self, purpose: str) -> BoardLink:
        return BoardLink(self._connection, self._options.python, purpose)
