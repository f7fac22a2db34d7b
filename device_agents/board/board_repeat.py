"""Repeats on a board: files, readiness, the worker there, and the fetch after a lost line."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleetrank.device_agents.board.board_files import (
    Prepared,
    files_of,
    no_result,
    prepare,
    texts,
    with_paths,
)
from fleetrank.device_agents.board.board_link import SHORT_S, BoardFile, BoardLink, Reply
from fleetrank.device_agents.board.options import BoardOptions
from fleetrank.device_agents.board.ssh.ssh_text import NoConnectionError
from fleetrank.device_agents.board.state.board_judgement import why_unfit, with_state
from fleetrank.device_agents.board.state.board_text import BoardState, parse_state
from fleetrank.device_agents.board.state.throttle_text import parse_throttled
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Measurement, failed
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.device_agents.contract.reply import read_reply
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import (
    HOST_PATIENCE_S,
    StoppedError,
    TransientError,
    host_in_use,
)
from fleetrank.foundation.codec import CodecError, Json
from fleetrank.foundation.lease import host_holder, host_lease
from fleetrank.foundation.vocabulary import Origin

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
        until_s = time.monotonic() + HOST_PATIENCE_S

        def is_over() -> bool:
            return self._wishes.stop() or time.monotonic() >= until_s

        with host_lease(purpose, is_shared=True, give_up=is_over) as is_held:
            if not is_held and self._wishes.stop():
                raise StoppedError("the measurement was stopped on request", "resume the sweep")
            if not is_held:
                raise host_in_use(host_holder())
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
        return failed(task.task_id, failure, Origin.MEASURED)
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
