"""Hands tasks to tabs and takes their answers; thread-safe, and it knows no network and no agent.

A tab is known by the hash of its key. One tab of a browser counts: the one that was opened last,
unless the other one measures.
"""

import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fleetrank.device_agents.browser.tab_messages import (
    Beat,
    Done,
    LoadedFile,
    Pairing,
    TabCall,
    TabFacts,
    read_frame,
    require_possible,
)
from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import (
    AgentError,
    AwayError,
    BadOutputError,
    NotFitError,
    StoppedError,
    TimedOutError,
    TransientError,
    UnusableDeviceError,
)
from fleetrank.foundation.codec import CodecError
from fleetrank.foundation.errors import FleetError

BEAT_LIMIT_S = 10.0
"""A page that measures says so each second; a slow line or a busy computer delays some."""
POLL_S = 20.0
"""How long a page's question for a task stays open; some proxies end it after 30 s."""
SEEN_S = 45.0
"""A page that waits asks again within 20 s; with a slow line that takes longer."""
_LOOK_S = 0.2
Answer = tuple[Done, Sequence[Array]]


class ReplacedError(AgentError):
    """Another tab of the same browser is the device now."""


class OverError(AgentError):
    """The task is not one that waits for this tab, or not any more."""


@dataclass(slots=True)
class Assignment:
    """One task for a tab.

    Attributes:
        text: the task as the page reads it, in JSON.
        inputs_for: the frame of inputs for a loaded file; may take seconds and raise `FleetError`.
        tab: the one that took it; `None` waits.
        heard_s: when that tab was heard last.
        answer: of the page, which the caller checks.
        error: why the answer is missing.
    """

    task: MeasureTask
    text: str
    inputs_for: Callable[[LoadedFile], bytes]
    tab: str | None = None
    heard_s: float = 0.0
    is_preparing: bool = False
    answer: Answer | None = None
    error: FleetError | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has an answer or an error."""
        return self.answer is not None or self.error is not None


@dataclass(slots=True)
class Tab:
    """The tab that is the device now."""

    tab: str
    facts: TabFacts
    is_hidden: bool
    seen_s: float


@dataclass(slots=True)
class Desk:
    """The tabs and tasks of one address.

    Attributes:
        link: the address that a person opens.
        token: of the link for the next pairing; `None` pairs none.
        expected: hashes of keys; the server talks to no other page.
        paired: the first pairing with that token.
    """

    link: str
    token: str | None = None
    paired: tuple[str, TabFacts] | None = None
    expected: set[str] = field(default_factory=set)
    _tabs: dict[str, Tab] = field(default_factory=dict)
    _assignments: dict[str, Assignment] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def pair(self, key_hash: str, pairing: Pairing) -> None:
        """Takes the key of a page that shows the token; the token is then used up.

        Raises:
            UnusableDeviceError: no such token is expected.
            BadOutputError: the browser cannot be measured.
        """
        with self._changed:
            wanted = self.token
            if wanted is None or not hmac.compare_digest(wanted.encode(), pairing.token.encode()):
                raise UnusableDeviceError(
                    "this link is used up or belongs to another registration",
                    "run `fleetrank devices add` again, and open the link that it prints",
                )
            require_possible(pairing.facts)
            self.token, self.paired = None, (key_hash, pairing.facts)
            self.expected.add(key_hash)
            self._changed.notify_all()

    def require_expected(self, key_hash: str) -> None:
        """Raises `UnusableDeviceError` for a page whose key no device here has."""
        if key_hash not in self.expected:
            raise UnusableDeviceError(
                "fleetrank measures with another browser now", "this page asks again by itself"
            )

    def wait_for_pairing(self, limit_s: float) -> tuple[str, TabFacts] | None:
        """The hash of the page's key and its facts, or `None` after the time limit."""
        with self._changed:
            self._changed.wait_for(lambda: self.paired is not None, limit_s)
            return self.paired

    def tab(self, key_hash: str, wait_s: float = 0.0) -> Tab:
        """The tab with this key.

        Raises:
            AwayError: none was heard lately.
            NotFitError: it is hidden.
        """
        self.expected.add(key_hash)
        with self._changed:
            self._changed.wait_for(lambda: self._present(key_hash) is not None, wait_s)
            found = self._present(key_hash)
        if found is None:
            raise AwayError("no tab of the browser is open", self._remedy, ask_again_s=1.0)
        if found.is_hidden:
            raise self._hidden()
        return found

    @property
    def _remedy(self) -> str:
        return f"open {self.link} again in that browser, and keep the tab visible"

    def _hidden(self) -> NotFitError:
        return NotFitError("the tab is hidden, so the browser slows it down", self._remedy, 1.0)

    def _present(self, key_hash: str) -> Tab | None:
        found = self._tabs.get(key_hash)
        is_here = found is not None and time.monotonic() - found.seen_s < SEEN_S
        return found if is_here else None

    def ask(
        self, key_hash: str, given: Assignment, limit_s: float, stop_requested: StopRequested
    ) -> Answer:
        """Gives a task to a tab and waits for its end.

        Raises:
            AwayError: the tab did not take it.
            TransientError: the tab was closed, or did not answer within the time.
            StoppedError: the user stopped it.
        """
        with self._changed:
            self._assignments[key_hash] = given
            self._changed.notify_all()
            began_s = given.heard_s = time.monotonic()
            try:
                while given.answer is None:
                    if given.error is not None:
                        raise given.error
                    if stop_requested():
                        raise StoppedError("stopped on request", "resume the sweep")
                    self._require_alive(key_hash, given, time.monotonic() - began_s > limit_s)
                    self._changed.wait(_LOOK_S)
                return given.answer
            finally:
                del self._assignments[key_hash]

    def _require_alive(self, key_hash: str, given: Assignment, is_late: bool) -> None:
        silent_s = time.monotonic() - given.heard_s
        present = self._present(key_hash)
        if is_late:
            raise TimedOutError(
                "the tab did not measure within the time limit", "raise the time limit of the sweep"
            )
        if given.tab is None and present is not None and present.is_hidden:
            raise self._hidden()
        if silent_s > BEAT_LIMIT_S and not given.is_preparing:
            gone = "the tab does not answer any more"
            if given.tab is None:
                raise AwayError(gone, self._remedy, ask_again_s=1.0)
            raise TransientError(f"{gone}: it was closed, frozen or slept", self._remedy)

    def next_task(self, key_hash: str, call: TabCall) -> str | None:
        """The text of the next task for a tab, or `None` if there is none for a while.

        Raises:
            ReplacedError: another tab of this browser is the device.
        """
        require_possible(call.facts)
        ends_s = time.monotonic() + POLL_S
        with self._changed:
            self._take_in(key_hash, call)
            while True:
                one = self._assignments.get(key_hash)
                if one is not None and one.tab is None and not call.is_hidden:
                    one.tab, one.heard_s = call.tab, time.monotonic()
                    return one.text
                left_s = ends_s - time.monotonic()
                if left_s <= 0 or self._tabs[key_hash].tab != call.tab:
                    return None
                self._changed.wait(left_s)

    def _take_in(self, key_hash: str, call: TabCall) -> None:
        now_s, before = time.monotonic(), self._present(key_hash)
        if before is not None and before.tab != call.tab:
            given = self._assignments.get(key_hash)
            measures = given is not None and given.tab == before.tab
            if measures or not call.is_new:
                raise ReplacedError(
                    "another tab of this browser is the device", "use that tab, and close this one"
                )
        self._tabs[key_hash] = Tab(call.tab, call.facts, call.is_hidden, now_s)
        self._changed.notify_all()

    def assignment_of(
        self, key_hash: str, tab: str | None = None, task_id: str | None = None
    ) -> Assignment:
        """The task that a tab has now.

        Raises:
            OverError: it has another one, or none.
        """
        with self._changed:
            given = self._assignments.get(key_hash)
            is_this = given is not None and task_id in (None, given.task.task_id)
            is_taken = given is not None and given.tab is not None and tab in (None, given.tab)
            # The first end of a task counts: a page that is closed also says that it is hidden.
            if given is None or not is_this or not is_taken or given.is_over:
                raise OverError("this task has ended", "wait for the next one")
            given.heard_s = time.monotonic()
            if (present := self._tabs.get(key_hash)) is not None:
                present.seen_s = given.heard_s
            return given

    def beat(self, key_hash: str, beat: Beat) -> None:
        """Notes that a tab measures, or that it is gone; raises as `assignment_of`."""
        given = self.assignment_of(key_hash, beat.tab, beat.task_id)
        if beat.is_gone:
            with self._changed:
                self._tabs.pop(key_hash, None)
            gone = "the tab was closed or loaded again during the repeat"
            self._end(given, TransientError(gone, self._remedy))

    def prepare(self, key_hash: str, loaded: LoadedFile) -> bytes:
        """The inputs for a loaded file; an error ends the task."""
        given = self.assignment_of(key_hash, loaded.tab, loaded.task_id)
        given.is_preparing = True
        try:
            return given.inputs_for(loaded)
        except FleetError as error:
            is_forged = isinstance(error, CodecError)
            self._end(given, BadOutputError(error.message, error.remedy) if is_forged else error)
            raise OverError(error.message, error.remedy) from error
        finally:
            given.heard_s, given.is_preparing = time.monotonic(), False

    def finish(self, key_hash: str, data: bytes) -> None:
        """Takes the answer of a tab; one that cannot be read ends the task too."""
        current = self.assignment_of(key_hash)
        try:
            done, outputs = read_frame(data)
            current = self.assignment_of(key_hash, done.tab, done.task_id)
        except CodecError as error:
            self._end(current, BadOutputError(error.message, error.remedy))
            raise
        with self._changed:
            current.answer = (done, outputs)
            self._changed.notify_all()

    def _end(self, given: Assignment, error: FleetError) -> None:
        with self._changed:
            given.error = error
            self._changed.notify_all()


def hash_of(key: str) -> str:
    """What a device file stores of a page's key."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]
