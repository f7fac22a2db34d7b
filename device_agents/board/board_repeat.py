"""One repeat on a board: gives tasks to the board's host, and waits for its answers.

A cut line costs nothing: the host there measures to the end, and keeps what nobody fetched yet.
"""

import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from fleetrank.device_agents.board.board_canary import CANARY_LIMIT_S
from fleetrank.device_agents.board.board_files import BoardFile, files_of
from fleetrank.device_agents.board.board_link import BoardLink, lacking, no_result
from fleetrank.device_agents.board.board_state import TURN_S, BoardOptions
from fleetrank.device_agents.board.ssh_text import NoConnectionError
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.measurement import Measurement, failed
from fleetrank.device_agents.contract.reply import read_reply
from fleetrank.device_agents.contract.task import MeasureTask, sweep_of
from fleetrank.device_agents.errors import (
    HOST_PATIENCE_S,
    StoppedError,
    StorageFullError,
    TimedOutError,
    TransientError,
    host_in_use,
)
from fleetrank.device_agents.hosts.files import with_places
from fleetrank.device_agents.hosts.messages import DeviceSpec, DeviceTask, PollRequest
from fleetrank.foundation.codec import CodecError, Json
from fleetrank.foundation.lease import Use, host_lease
from fleetrank.foundation.vocabulary import ErrorKind

_MARGIN_S = 30.0
"""For the board's part around the worker: its time limit is kept there."""
_QUIET_LOOK_S = 5.0
"""The board looks for a second at what else runs there, if the sweep wants a quiet host."""
_PAUSE_S = 2.0
"""Between two attempts to connect again; each can take seconds by itself."""
_STOP_S = 20.0
"""For the end of a worker there that was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user can ask for while a repeat runs: `stop` ends it, `finish` ends a round."""

    stop: StopRequested = never_stop
    finish: StopRequested = never_stop


def device_there(options: BoardOptions) -> DeviceSpec:
    """The device with these options, as the board's host knows it."""
    given = ((one.name, getattr(options, one.name)) for one in fields(options))
    return DeviceSpec(
        name="cpu" if options.gpu is None else f"gpu-{options.gpu.replace('/', '_')}",
        kind="board",
        options=tuple(sorted((name, value) for name, value in given if value is not None)),
        share=HostShare.ALONE,
    )


class BoardRepeat:
    """Measures one task, or those of a round; every failure is raised as a `FleetError`.

    To the board's host each of its devices is a sweep of its own, so no other gets its answers.
    """

    def __init__(
        self, link: BoardLink, options: BoardOptions, tasks: Sequence[MeasureTask], wishes: Wishes
    ) -> None:
        self._link = link
        self._options = options
        self._wishes = wishes
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
        found = self._asked()
        if any(map(_is_interrupted, found)) and not self._wishes.stop():
            # An earlier driver stopped them, and did not fetch that.
            found = self._asked()
        return found

    def _on_board(self, task: MeasureTask) -> MeasureTask:
        there = with_places(task, lambda path: self._files[path].name)
        return replace(there, task_id=self._mark + task.task_id, members=self._members)

    def _asked(self) -> list[Measurement]:
        if self._wishes.stop():
            raise _stopped()
        try:
            self._give()
        except StoppedError:
            # What was accepted before would run on.
            with contextlib.suppress(TransientError):
                self._link.call("interrupt", self._sweep)
            raise
        answers = self._wait()
        # If that is lost too, the board forgets them after others.
        with contextlib.suppress(TransientError):
            self._poll(0.0, self._members, never_stop)
        return [self._answer(answers[task.task_id], task) for task in self._tasks]

    def _give(self) -> None:
        """Gives the tasks to the board, with the files that it lacks."""
        orders = tuple(DeviceTask(spec=self._spec, task=task) for task in self._tasks)
        by_name = {file.name: file for file in self._files.values()}

        def missing() -> list[BoardFile]:
            has_files, stop = False, self._wishes.stop
            reply = self._link.call("accept", orders, has_files, stop_requested=stop)
            return lacking(reply, by_name)

        if files := missing():
            self._send(files)
            if missing():
                raise StorageFullError(
                    "the board has no room for all files of this repeat", "free some space there"
                )

    def _send(self, files: Sequence[BoardFile]) -> None:
        # Encryption at full speed would disturb a measurement on this host's processor.
        purpose = f"{self._sweep}, which sends a file to {self._link.host}"
        with host_lease(
            purpose,
            use=Use.BESIDE,
            give_up=self._wishes.stop,
            limit_s=HOST_PATIENCE_S,
            busy=host_in_use,
        ) as is_held:
            if not is_held:
                raise _stopped()
            for file in files:
                self._link.send(file, self._wishes.stop)

    def _wait(self) -> Mapping[str, Json]:
        """Polls until every task is answered; after a stop, until each has ended there."""
        answers: dict[str, Json] = {}
        boot, stop = self._link.boot, self._wishes.stop
        ends_s = time.monotonic() + TURN_S + _limit_s(self._tasks)
        while missing := {*self._members} - answers.keys():
            try:
                reply = self._connected(max(0.0, ends_s - time.monotonic()), stop)
            except StoppedError:
                self._link.call("interrupt", self._sweep)
                # Otherwise the next driver would get these answers.
                self._session = secrets.token_hex(8)
                ends_s, stop = time.monotonic() + _STOP_S, never_stop
                continue
            news = _News.of(reply)
            if news.has_hung:
                raise self._too_late("end")
            answers |= {name: news.answers[name] for name in missing & news.answers.keys()}
            missing -= answers.keys()
            if missing - news.running:
                raise self._lost(has_restarted=self._link.boot != boot)
            if missing and time.monotonic() >= ends_s:
                raise self._too_late("interrupt", self._sweep)
        return answers

    def _connected(self, wait_s: float, stop: StopRequested) -> Json:
        """The reply to a poll; a line that was cut is opened again.

        Raises:
            TransientError: it cannot be opened for a while.
        """
        first: NoConnectionError | None = None
        cut_s = 0.0
        while True:
            try:
                return self._poll(wait_s, (), stop)
            except NoConnectionError as error:
                # A reply may be lost: in a new session all is offered again.
                self._session = secrets.token_hex(8)
                cut_s = time.monotonic() if first is None else cut_s
                first = first or error
                if stop() or time.monotonic() - cut_s > self._options.reconnect_s:
                    raise TransientError(first.message, first.remedy) from error
                time.sleep(_PAUSE_S)

    def _poll(self, wait_s: float, acknowledged: tuple[str, ...], stop: StopRequested) -> Json:
        request = PollRequest(
            sweep_id=self._sweep, session=self._session, acknowledged=acknowledged, wait_s=wait_s
        )
        return self._link.call(
            "poll",
            request,
            timeout_s=wait_s + _MARGIN_S,
            stop_requested=stop,
            meanwhile=self._finish_once,
        )

    def _finish_once(self) -> None:
        if not self._is_finishing and self._wishes.finish():
            self._link.call("finish_rounds", self._sweep)
            self._is_finishing = True

    def _lost(self, *, has_restarted: bool) -> TransientError:
        what = "the board restarted" if has_restarted else "the host on the board has ended"
        return TransientError(
            f"{what} during the repeat, which ended with it",
            "check the board's power supply and its free memory",
        )

    def _too_late(self, method: str, *arguments: object) -> TransientError:
        """Ends the tasks there by this call; returns the error."""
        with contextlib.suppress(TransientError):
            self._link.call(method, *arguments)
        if self._wishes.stop():
            return _stopped()
        return TimedOutError(
            f"{self._link.host} did not measure within the time limit",
            "check that the board does not hang",
        )

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _News:
    """A reply to a poll: answers by task, which the caller checks, and the tasks in flight."""

    answers: Mapping[str, Json]
    running: frozenset[str]
    has_hung: bool

    @classmethod
    def of(cls, plain: Json) -> "_News":
        """Reads a `PollReply`.

        Raises:
            BadOutputError: it is none.
        """
        match plain:
            case {
                "measurements": [*measurements], "running": [*running], "has_hung": bool(has_hung)
            }:  # fmt: skip
                found = [one for one in measurements if isinstance(one, dict)]
                return cls(
                    answers={str(one.get("task_id")): one for one in found},
                    running=frozenset(str(one[0]) for one in running if isinstance(one, list)),
                    has_hung=has_hung,
                )
        raise no_result("it is no news of tasks")


def _is_interrupted(found: Measurement) -> bool:
    return found.failure is not None and found.failure.kind is ErrorKind.INTERRUPTED


def _limit_s(tasks: Sequence[MeasureTask]) -> float:
    """The longest time there, with what the board's own agent waits for a quiet moment."""
    canary_s = 0.0 if tasks[0].canary is None else 2 * CANARY_LIMIT_S
    return sum(task.timeout_s for task in tasks) + _QUIET_LOOK_S + canary_s


def _stopped() -> StoppedError:
    return StoppedError("the measurement was stopped on request", "resume the sweep")
