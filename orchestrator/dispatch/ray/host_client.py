"""A driver's client of one host: sends tasks, polls for measurements, and fails lost tasks."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.host.host_service import DeviceTask, PollReply, PollRequest
from fleetrank.orchestrator.dispatch.ray.file_transfer import FileTransfer
from fleetrank.orchestrator.dispatch.ray.ray_hosts import HostHandle
from fleetrank.orchestrator.identity.cells import DeviceSpec

if TYPE_CHECKING:
    import ray

_WAIT_S = 1.0
"""A host with nothing to report answers after this time, to show that it is alive."""
_PAUSE_S = 0.3
"""Pause between two calls to a host whose process is being restarted."""
_ABSENCE_S = 2.0
"""An active driver calls `exchange` a few times a second."""
_SEE_LOGS = "the repeat will be retried; if it keeps failing, read Ray's logs on that host"


class HostClient:
    """Talks to the service of one host. Used by one thread.

    A reply can be lost in one place only: `_reply_lost` starts a new session, and the host then
    offers all its measurements again.

    Attributes:
        handle: the actor of the host.
        in_flight: tasks in flight on this host, by task id.
        acknowledged: ids of stored tasks, to be sent with the next poll.
        has_died: the actor will never answer again; a new client is needed.
    """

    def __init__(
        self,
        handle: HostHandle,
        sweep_id: str,
        specs: Mapping[str, DeviceSpec],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Takes the host, the sweep's devices by name, and a monotonic clock in seconds."""
        self._clock = clock
        self.handle = handle
        self.in_flight: dict[str, DeviceSpec] = {}
        self.acknowledged: list[str] = []
        self.has_died = False
        self._sweep_id = sweep_id
        self._specs = specs
        self._outbox: list[DeviceTask] = []
        self._sent: dict[ray.ObjectRef, tuple[DeviceTask, ...]] = {}
        self._polled: ray.ObjectRef | None = None
        self._request = self._new_request()
        self._is_answered = False
        self._transfers: list[FileTransfer] = []
        self._arrived: list[Measurement] = []
        self._pause_until_s = 0.0
        self._heard_s = self._listened_s = clock()

    @property
    def silent_s(self) -> float:
        """How long the host has not answered an active driver, as of the last `exchange`."""
        return max(0.0, self._listened_s - self._heard_s)

    @property
    def is_answered(self) -> bool:
        """Whether the host has reported its tasks and measurements since the last failure."""
        return self._is_answered

    def submit(self, given: DeviceTask) -> None:
        """Adds a task to the next batch."""
        self.in_flight[given.task.task_id] = given.spec
        self._outbox.append(given)

    def exchange(self) -> Sequence["ray.ObjectRef"]:
        """Sends pending tasks and a poll; returns the replies to wait for."""
        self._pass_over_absence()
        self._end_transfers()
        if self._clock() >= self._pause_until_s:
            # After the first reply only, because a task it does not name counts as lost.
            if self._outbox and self._is_answered:
                self._send_tasks()
            if self._polled is None:
                self._poll()
        return [*self._sent, *([] if self._polled is None else [self._polled])]

    def _pass_over_absence(self) -> None:
        """Excludes time in which the driver exported models or waited for a disk."""
        now_s = self._clock()
        self._heard_s += max(0.0, now_s - self._listened_s - _ABSENCE_S)
        self._listened_s = now_s

    def receive(self, reference: "ray.ObjectRef") -> None:
        """Reads one reply that has arrived."""
        import ray

        tasks = self._sent.pop(reference, None)
        if reference == self._polled:
            self._polled = None
        try:
            reply = ray.get(reference)
        except ray.exceptions.RayError as error:
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

    def fail_all(self, kind: ErrorKind, message: str) -> None:
        """Fails all tasks in flight; no more replies are expected."""
        self._outbox.clear()
        self._stop_transfers()
        self._fail(tuple(self.in_flight), kind, message, _SEE_LOGS)

    def finish_rounds(self) -> None:
        """Ends running rounds after their current blocks."""
        self.handle.actor.finish_rounds.remote(self._sweep_id)

    def interrupt(self) -> None:
        """Ends running tasks and tasks that have not been sent yet."""
        self.handle.actor.interrupt.remote(self._sweep_id)
        unsent = [*self._outbox, *(given for d in self._transfers for given in d.tasks)]
        self._outbox.clear()
        self._stop_transfers()
        message = "interrupted before it started"
        self._fail(_ids(unsent), ErrorKind.INTERRUPTED, message, "resume the sweep")

    def _send_tasks(self) -> None:
        tasks, self._outbox = tuple(self._outbox), []
        has_files = self.handle.shares_files
        self._sent[self.handle.actor.accept.remote(tasks, has_files=has_files)] = tasks

    def _poll(self) -> None:
        self._request = PollRequest(
            sweep_id=self._sweep_id,
            session=self._request.session,
            acknowledged=tuple(self.acknowledged),
            wait_s=_WAIT_S if self._is_answered else 0.0,
        )
        self._polled = self.handle.actor.poll.remote(self._request)

    def _read(self, reply: PollReply) -> None:
        sent = set(self._request.acknowledged)
        self.acknowledged = [task_id for task_id in self.acknowledged if task_id not in sent]
        for measurement in reply.measurements:
            self.in_flight.pop(measurement.task_id, None)
        self._arrived += reply.measurements
        if reply.session == self._request.session and not self._is_answered:
            self._is_answered = True
            self._find_lost(reply)
        if reply.has_hung:
            self._restart()

    def _find_lost(self, reply: PollReply) -> None:
        """Decides from the first reply after a failure which tasks are running or lost.

        Tasks that the host runs for an earlier driver are in flight for this one. Tasks that the
        host does not know were lost with its process.
        """
        unclear = {*_ids(self._outbox)}
        for tasks in (*self._sent.values(), *(d.tasks for d in self._transfers)):
            unclear |= {*_ids(tasks)}
        gone = self.in_flight.keys() - reply.running.keys() - unclear
        message = "the host's process died during the measurement"
        self._fail(sorted(gone), ErrorKind.DEVICE_LOST, message, _SEE_LOGS)
        for task_id, device in reply.running.items():
            if device in self._specs:
                self.in_flight.setdefault(task_id, self._specs[device])

    def _send_files(self, tasks: Sequence[DeviceTask], missing: Sequence[str]) -> None:
        transfer = FileTransfer(self.handle.actor, tasks, missing)
        transfer.start()
        self._transfers.append(transfer)

    def _stop_transfers(self) -> None:
        for transfer in self._transfers:
            transfer.stop()
        self._transfers.clear()

    def _end_transfers(self) -> None:
        for transfer in [transfer for transfer in self._transfers if transfer.is_over]:
            self._transfers.remove(transfer)
            if transfer.error is None:
                self._outbox += [t for t in transfer.tasks if t.task.task_id in self.in_flight]
            else:
                message = f"its artifact did not reach the host: {transfer.error}"
                remedy = "check the free space on its disk and the network"
                self._fail(_ids(transfer.tasks), ErrorKind.DEVICE_LOST, message, remedy)

    def _reply_lost(self, error: Exception) -> None:
        """Starts a new session after a lost reply; the host then offers all measurements."""
        import ray

        self.has_died = isinstance(error, ray.exceptions.ActorDiedError)
        self._request = self._new_request()
        self._is_answered = False
        self._pause_until_s = self._clock() + _PAUSE_S

    def _restart(self) -> None:
        """Restarts the host's process, because one of its agents hangs permanently."""
        import ray

        ray.kill(self.handle.actor, no_restart=False)

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
