"""The hosts of a sweep as its driver sees them: it sends tasks, polls, and finds what was lost.

How a host is called is a `Reach`: `HostHere` calls one in this process, `ray_process` calls the
hosts of Ray. The rest is the same for both.
"""

import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.hosts.files import file_paths, waiting_for
from fleetrank.device_agents.hosts.messages import DeviceSpec, DeviceTask, PollReply, PollRequest
from fleetrank.device_agents.hosts.reach import HostLink, Reach
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.errors import HostDiedError, RayLostError

_log = logging.getLogger(__name__)

_PROBE_TIMEOUT_S = 60.0
"""A probe of a phone that hangs takes half a minute to fail."""
_FACTS_TIMEOUT_S = 120.0
_FIRST_REPLY_S = 10.0
_LEAVE_S = 5.0
"""Time for the last acknowledgements; hosts offer unacknowledged measurements again."""
_RELEASE_S = 30.0
"""Time for the commands that give reserved devices back; later, the reservations lapse."""
_WAIT_S = 1.0
"""A host with nothing to report answers after this time, to show that it is alive."""
_BATCH_S = 0.01
"""Replies of several hosts in this period are read together: a round costs more than a reply."""
_PAUSE_S = 0.3
"""Pause between two calls to a host whose process is being restarted."""
_ABSENCE_S = 2.0
"""An active driver calls `exchange` a few times a second."""
_SEE_LOGS = "the repeat will be retried; if it keeps failing, read Ray's logs on that host"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedDevice:
    """A device and the name of the host it is attached to."""

    spec: DeviceSpec
    host: str


_MOST_AHEAD_S = 2.0
"""NTP keeps clocks within milliseconds; a repeat takes seconds."""


def wrong_clock(host: str, ahead_s: float) -> str | None:
    """What to say of a host's clock; `None` if it shows this host's time."""
    off = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'}"
    said = f"the clock of {host} is {off} this host's, whose time rows get: set it by NTP"
    return f"{said} (`timedatectl set-ntp true`)" if abs(ahead_s) > _MOST_AHEAD_S else None


class Hosts:
    """Carries the tasks of one sweep to hosts and measurements back; decides nothing.

    A context manager: entering probes the devices, leaving ends every task. The running tasks of a
    host that does not answer fail as `host_lost`. When the host returns, it offers the measurements
    it has finished, and its devices answer probes again.
    """

    def __init__(
        self,
        sweep_id: str,
        devices: Sequence[PlacedDevice],
        reach: Reach,
        *,
        silent_s: float = math.inf,
        met: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes the sweep and its devices.

        Args:
            sweep_id: the sweep's id.
            devices: its devices, each with its host.
            reach: calls the hosts.
            silent_s: a host that does not answer for so long is lost.
            met: hosts whose clocks were compared already.
            clock: a monotonic clock in seconds.
        """
        self._sweep_id = sweep_id
        self._devices = {device.spec.name: device for device in devices}
        self._specs = {device.spec.name: device.spec for device in devices}
        self._reach = reach
        self._silent_s = silent_s
        self._met = set(met)
        self._clock = clock
        self._clients: dict[str, _Client] = {}
        self._joined: list[str] = []
        self._origins: dict[str, str] = {}
        self._arrived: list[Measurement] = []
        self._facts: dict[str, DeviceFacts] = {}

    def __enter__(self) -> Self:
        self._ask_facts()
        self._renew_clients()
        deadline_s = time.monotonic() + _FIRST_REPLY_S
        while time.monotonic() < deadline_s:
            if all(client.is_answered for client in self._clients.values()):
                break
            self._arrived += self._exchange(0.1)
        return self

    def __exit__(self, *exc_info: object) -> None:
        # Without Ray nothing is lost: hosts offer again what was not acknowledged.
        try:
            self.interrupt()
            deadline_s = time.monotonic() + _LEAVE_S
            while time.monotonic() < deadline_s and self._has_acknowledgements():
                self._exchange(0.1)
            self._release()
        except RayLostError as error:
            _log.info("the hosts were not left as they should be: %s", error)
        self._clients.clear()

    def facts(self) -> Mapping[str, DeviceFacts]:
        """Facts of each device, probed when entering; a device that did not answer is missing."""
        return self._facts

    def in_flight(self) -> Mapping[str, str]:
        """Tasks in flight, as a mapping from task id to device.

        Directly after entering: the tasks that an earlier driver left running.
        """
        return {
            task_id: spec.name
            for client in self._clients.values()
            for task_id, spec in client.in_flight.items()
        }

    def submit(self, device: str, task: MeasureTask) -> None:
        """Gives a task to a device that has no running task; the next poll sends it."""
        placed = self._devices[device]
        client = self._clients.get(placed.host)
        if client is None:
            failure = _host_lost(f"host {placed.host} is unavailable")
            self._arrived.append(failed(task.task_id, failure, placed.spec.origin))
        else:
            client.submit(DeviceTask(spec=placed.spec, task=task))

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        """Waits at most `timeout_s` for measurements and returns those that arrived.

        If a process dies, its running task returns as a failed measurement of kind `device_lost`;
        if a host does not answer, of kind `host_lost`. Late measurements are returned too: an
        earlier driver started them, or they were believed lost.

        Raises:
            RayLostError: Ray has ended.
        """
        arrived, self._arrived = self._arrived, []
        self._renew_clients()
        return [*arrived, *self._exchange(0.0 if arrived else timeout_s)]

    def joined(self) -> Sequence[str]:
        """The hosts that have answered for the first time, or again, since the last call."""
        joined, self._joined = self._joined, []
        return joined

    def acknowledge(self, task_ids: Sequence[str]) -> None:
        """Acknowledges stored measurements with the next poll of the host that made them.

        Until then the host keeps them.
        """
        for task_id in task_ids:
            client = self._clients.get(self._origins.pop(task_id, ""))
            if client is not None:
                client.acknowledged.append(task_id)

    def probe(self, device: str) -> DeviceFacts | Failure:
        """Probes a device; blocks. Safe to call from any thread."""
        placed = self._devices[device]
        if placed.host not in self._reach.hosts():
            return _host_lost(f"host {placed.host} is unavailable")
        try:
            asked = self._reach.call(placed.host, "probe", placed.spec)
            answer: DeviceFacts | Failure = asked.result(_PROBE_TIMEOUT_S)
        except Exception as error:
            why = str(error) or f"no reply in {_PROBE_TIMEOUT_S:g} s"
            return _host_lost(f"host {placed.host} does not answer: {why}")
        return answer

    def cycle_power(self, device: str) -> str | None:
        """Switches a device off and on, on its host; returns why that failed. As `probe`."""
        placed = self._devices[device]
        limit_s = _PROBE_TIMEOUT_S + (placed.spec.power.limit_s if placed.spec.power else 0.0)
        try:
            asked = self._reach.call(placed.host, "cycle_power", placed.spec)
            answer: str | None = asked.result(limit_s)
        except Exception as error:
            return f"host {placed.host} does not answer: {error or type(error).__name__}"
        return answer

    def finish_rounds(self) -> None:
        """Ends running rounds after their current blocks, which count."""
        for host in self._clients:
            self._reach.call(host, "finish_rounds", self._sweep_id)

    def interrupt(self) -> None:
        """Ends running tasks now; each returns as a failure of kind `interrupted`."""
        for host, client in self._clients.items():
            self._reach.call(host, "interrupt", self._sweep_id)
            client.drop_unsent()

    def _exchange(self, timeout_s: float) -> list[Measurement]:
        """One round over all hosts: sends, waits for a first reply, reads all that have arrived."""
        waiting = {
            answer: client for client in self._clients.values() for answer in client.exchange()
        }
        if waiting:
            found = wait(waiting, timeout_s, FIRST_COMPLETED).done
            if found and len(self._clients) > 1:
                found = wait(waiting, _BATCH_S).done
            for answer in found:
                waiting[answer].receive(answer)
        elif timeout_s:
            time.sleep(timeout_s)
        return [found for name in self._clients for found in self._drain(name)]

    def _drain(self, host: str) -> Sequence[Measurement]:
        arrived = self._clients[host].take_measurements()
        self._origins |= dict.fromkeys((found.task_id for found in arrived), host)
        return arrived

    def _renew_clients(self) -> None:
        found = self._reach.hosts()
        for name, client in list(self._clients.items()):
            trouble = self._trouble(client, found.get(name))
            if trouble is not None:
                _log.info("host %s: %s", name, trouble)
                client.fail_all(f"host {name}: {trouble}")
                self._arrived += self._drain(name)
                del self._clients[name]
                self._met.discard(name)
        for name, link in found.items():
            if name not in self._clients:
                said = wrong_clock(name, link.clock_ahead_s)
                if said is not None and name not in self._met:
                    _log.warning("%s", said)
                self._joined.append(name)
                self._clients[name] = _Client(
                    name, link, self._reach, self._sweep_id, self._specs, self._clock
                )

    def _trouble(self, client: "_Client", link: HostLink | None) -> str | None:
        """Returns why a client cannot be used any more; `None` if it can."""
        if link is None or link.node_id != client.link.node_id:
            return "it has left the cluster"
        if client.has_died:
            self._reach.restart(client.host, is_lost=True)
            return "its actor has died"
        if client.silent_s > self._silent_s:
            self._reach.restart(client.host, is_lost=True)
            return f"it has not answered for {self._silent_s:g} s"
        return None

    def _release(self) -> None:
        """Gives reserved devices back, so that a lab need not wait until they lapse."""
        reserved = {(one.host, one.spec.reserve) for one in self._devices.values()}
        answers = []
        for host in self._clients:
            here = [found for name, found in reserved if name == host and found is not None]
            if here:
                answers.append(self._reach.call(host, "release", here))
        wait(answers, _RELEASE_S)

    def _has_acknowledgements(self) -> bool:
        return any(client.acknowledged for client in self._clients.values())

    def _ask_facts(self) -> None:
        answers = {}
        for host in self._reach.hosts():
            specs = [placed.spec for placed in self._devices.values() if placed.host == host]
            answers[host] = self._reach.call(host, "facts", specs)
        for host, answer in answers.items():
            try:
                self._facts |= answer.result(_FACTS_TIMEOUT_S)
            except RayLostError:
                raise
            except Exception as error:
                _log.warning("the probes of host %s failed: %s", host, error)


class _Client:
    """A driver's client of one host. Used by one thread.

    A reply can be lost in one place only: `_reply_lost` starts a new session, and the host then
    offers all its measurements again.

    Attributes:
        in_flight: tasks in flight on this host, by task id.
        acknowledged: ids of stored tasks, to be sent with the next poll.
        has_died: the host's process will never answer again; a new client is needed.
        is_answered: the host has reported its tasks and measurements since the last failure.
    """

    def __init__(
        self,
        host: str,
        link: HostLink,
        reach: Reach,
        sweep_id: str,
        specs: Mapping[str, DeviceSpec],
        clock: Callable[[], float],
    ) -> None:
        self.host = host
        self.link = link
        self.in_flight: dict[str, DeviceSpec] = {}
        self.acknowledged: list[str] = []
        self.has_died = False
        self.is_answered = False
        self._reach = reach
        self._specs = specs
        self._clock = clock
        self._outbox: list[DeviceTask] = []
        self._sent: dict[Future[Any], tuple[DeviceTask, ...]] = {}
        self._transfers: dict[Future[Any], tuple[DeviceTask, ...]] = {}
        self._polled: Future[Any] | None = None
        self._sweep_id = sweep_id
        self._request = self._new_request()
        self._arrived: list[Measurement] = []
        self._pause_until_s = 0.0
        self._heard_s = self._listened_s = clock()

    @property
    def silent_s(self) -> float:
        """How long the host has not answered an active driver, as of the last `exchange`."""
        return max(0.0, self._listened_s - self._heard_s)

    def submit(self, given: DeviceTask) -> None:
        """Adds a task to the next batch."""
        self.in_flight[given.task.task_id] = given.spec
        self._outbox.append(given)

    def exchange(self) -> Sequence[Future[Any]]:
        """Sends pending tasks and a poll; returns the replies to wait for."""
        now_s = self._clock()
        # Without the time in which the driver exported models or waited for a disk.
        self._heard_s += max(0.0, now_s - self._listened_s - _ABSENCE_S)
        self._listened_s = now_s
        if now_s >= self._pause_until_s:
            # After the first reply only, because a task it does not name counts as lost.
            if self._outbox and self.is_answered:
                tasks, self._outbox = tuple(self._outbox), []
                answer = self._reach.call(self.host, "accept", tasks, self.link.has_files)
                self._sent[answer] = tasks
            if self._polled is None:
                self._request = PollRequest(
                    sweep_id=self._sweep_id,
                    session=self._request.session,
                    acknowledged=tuple(self.acknowledged),
                    wait_s=_WAIT_S if self.is_answered else 0.0,
                )
                self._polled = self._reach.call(self.host, "poll", self._request)
        return [*self._sent, *self._transfers, *([] if self._polled is None else [self._polled])]

    def receive(self, answer: Future[Any]) -> None:
        """Reads one reply that has arrived."""
        if answer in self._transfers:
            self._files_sent(self._transfers.pop(answer), answer.exception())
            return
        tasks = self._sent.pop(answer, None)
        if answer is self._polled:
            self._polled = None
        try:
            reply = answer.result()
        except RayLostError:
            raise
        except Exception as error:
            self._reply_lost(error)
            return
        self._heard_s = self._clock()
        if tasks is None:
            self._read(reply)
        elif reply:
            self._send_files(tasks, reply)

    def take_measurements(self) -> Sequence[Measurement]:
        """Returns the measurements since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def fail_all(self, message: str) -> None:
        """Fails all tasks in flight; no more replies are expected."""
        self._outbox.clear()
        self._transfers.clear()
        self._fail(tuple(self.in_flight), ErrorKind.HOST_LOST, message, _SEE_LOGS)

    def drop_unsent(self) -> None:
        """Ends the tasks that have not been sent yet."""
        unsent = [*self._outbox, *(given for tasks in self._transfers.values() for given in tasks)]
        self._outbox.clear()
        self._transfers.clear()
        message = "interrupted before it started"
        self._fail(_ids(unsent), ErrorKind.INTERRUPTED, message, "resume the sweep")

    def _read(self, reply: PollReply) -> None:
        sent = set(self._request.acknowledged)
        self.acknowledged = [task_id for task_id in self.acknowledged if task_id not in sent]
        for measurement in reply.measurements:
            self.in_flight.pop(measurement.task_id, None)
        ahead = timedelta(seconds=self.link.clock_ahead_s)
        self._arrived += [_in_time_of_driver(one, ahead) for one in reply.measurements]
        if reply.session == self._request.session and not self.is_answered:
            self.is_answered = True
            self._find_lost(reply)
        if reply.has_hung:
            # One of its agents hangs permanently.
            self._reach.restart(self.host, is_lost=False)

    def _find_lost(self, reply: PollReply) -> None:
        """Decides from the first reply after a failure which tasks are running or lost.

        Tasks that the host runs for an earlier driver are in flight for this one. Tasks that the
        host does not know were lost with its process.
        """
        unclear = {*_ids(self._outbox)}
        for tasks in (*self._sent.values(), *self._transfers.values()):
            unclear |= {*_ids(tasks)}
        running = dict(reply.running)
        gone = self.in_flight.keys() - running.keys() - unclear
        message = "the host's process died during the measurement"
        self._fail(sorted(gone), ErrorKind.DEVICE_LOST, message, _SEE_LOGS)
        for task_id, device in running.items():
            if device in self._specs:
                self.in_flight.setdefault(task_id, self._specs[device])

    def _send_files(self, tasks: Sequence[DeviceTask], missing: Sequence[str]) -> None:
        ids = waiting_for(missing, [given.task for given in tasks])
        waiting = tuple(given for given in tasks if given.task.task_id in ids)
        paths = {path.name: path for given in waiting for path in file_paths(given.task)}
        answer = self._reach.send_files(self.host, [paths[name] for name in missing])
        self._transfers[answer] = waiting

    def _files_sent(self, tasks: Sequence[DeviceTask], error: BaseException | None) -> None:
        """Sends the tasks again; the host reports whether files are still missing."""
        if error is None:
            self._outbox += [one for one in tasks if one.task.task_id in self.in_flight]
            return
        _log.warning("an artifact did not reach host %s: %s", self.host, error)
        message = f"its artifact did not reach the host: {error}"
        remedy = "check the free space on its disk and the network"
        self._fail(_ids(tasks), ErrorKind.DEVICE_LOST, message, remedy)

    def _reply_lost(self, error: Exception) -> None:
        """Starts a new session after a lost reply; the host then offers all measurements."""
        _log.info("host %s: a reply was lost: %s", self.host, error)
        self.has_died = isinstance(error, HostDiedError)
        self._request = self._new_request()
        self.is_answered = False
        self._pause_until_s = self._clock() + _PAUSE_S

    def _new_request(self) -> PollRequest:
        return PollRequest(sweep_id=self._sweep_id, session=secrets.token_hex(8))

    def _fail(self, task_ids: Sequence[str], kind: ErrorKind, message: str, remedy: str) -> None:
        failure = Failure(
            kind=kind, message=message, remedy=remedy, is_transient=True, stage="start"
        )
        for task_id in task_ids:
            if (spec := self.in_flight.pop(task_id, None)) is not None:
                self._arrived.append(failed(task_id, failure, spec.origin))


def _ids(tasks: Sequence[DeviceTask]) -> Sequence[str]:
    return [given.task.task_id for given in tasks]


def _in_time_of_driver(found: Measurement, ahead: timedelta) -> Measurement:
    """The measurement with stamps of this host's clock, so that rows of a sweep have one order."""
    stamps = (found.started_utc, found.finished_utc)
    if not ahead:
        return found
    with contextlib.suppress(ValueError):  # no stamp
        started, finished = ((datetime.fromisoformat(str(s)) - ahead).isoformat() for s in stamps)
        return replace(found, started_utc=started, finished_utc=finished)
    return found


def _host_lost(message: str) -> Failure:
    return Failure(
        kind=ErrorKind.HOST_LOST,
        message=message,
        remedy="`fleetrank doctor` with `cluster=auto` lists the available hosts",
        is_transient=True,
        stage="start",
    )
