"""The connection from a driver to one host: sends orders, receives answers."""

import secrets
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.host.host_service import Answer, Order, Question
from fleetrank.orchestrator.dispatch.ray.delivery import Delivery
from fleetrank.orchestrator.dispatch.ray.ray_hosts import HostHandle
from fleetrank.orchestrator.workspace.device_spec import DeviceSpec

if TYPE_CHECKING:
    import ray

_WAIT_S = 1.0
"""A host with nothing to report answers after this time, to show that it is alive."""
_PAUSE_S = 0.3
"""Pause between two calls to a host whose process is being restarted."""
_ABSENCE_S = 2.0
"""An active driver calls `pump` a few times a second."""
_SEE_LOGS = "the repeat will be retried; if it keeps failing, read Ray's logs on that host"


class HostLine:
    """The driver's side of the connection. Used by one thread.

    Attributes:
        handle: the actor of the host.
        under_way: tasks in flight on this host, by task id.
        acknowledged: ids of stored tasks, to be sent with the next question.
        has_died: the actor will never answer again; a new line is needed.
    """

    def __init__(self, handle: HostHandle, sweep_id: str, specs: Mapping[str, DeviceSpec]) -> None:
        """Takes the host, and the sweep's devices by name."""
        self.handle = handle
        self.under_way: dict[str, DeviceSpec] = {}
        self.acknowledged: list[str] = []
        self.has_died = False
        self._sweep_id = sweep_id
        self._specs = specs
        self._outbox: list[Order] = []
        self._sent: dict[ray.ObjectRef, tuple[Order, ...]] = {}
        self._asked: ray.ObjectRef | None = None
        self._question = self._new_question()
        self._is_answered = False
        self._deliveries: list[Delivery] = []
        self._arrived: list[Measurement] = []
        self._pause_until_s = 0.0
        self._heard_s = self._listened_s = monotonic()

    @property
    def silent_s(self) -> float:
        """How long the host has not answered an active driver, as of the last `pump`."""
        return max(0.0, self._listened_s - self._heard_s)

    @property
    def is_answered(self) -> bool:
        """Whether the host has reported its tasks and measurements since the last failure."""
        return self._is_answered

    def order(self, order: Order) -> None:
        """Adds a task to the next batch."""
        self.under_way[order.task.task_id] = order.spec
        self._outbox.append(order)

    def pump(self) -> Sequence["ray.ObjectRef"]:
        """Sends pending orders and questions; returns the replies to wait for."""
        self._pass_over_absence()
        self._end_deliveries()
        if monotonic() >= self._pause_until_s:
            # After the first answer only, because a task it does not name counts as lost.
            if self._outbox and self._is_answered:
                self._send_orders()
            if self._asked is None:
                self._ask()
        return [*self._sent, *([] if self._asked is None else [self._asked])]

    def _pass_over_absence(self) -> None:
        """Excludes time in which the driver exported models or waited for a disk."""
        now_s = monotonic()
        self._heard_s += max(0.0, now_s - self._listened_s - _ABSENCE_S)
        self._listened_s = now_s

    def take(self, reference: "ray.ObjectRef") -> None:
        """Reads one reply that has arrived."""
        import ray

        orders = self._sent.pop(reference, None)
        if reference == self._asked:
            self._asked = None
        try:
            reply = ray.get(reference)
        except ray.exceptions.RayError as error:
            self._stumble(error)
            return
        self._heard_s = monotonic()
        if orders is None:
            self._read(reply)
        elif reply:
            self._deliver(orders, reply)

    def drain(self) -> Sequence[Measurement]:
        """Returns the measurements since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def lose(self, kind: ErrorKind, message: str) -> None:
        """Fails all tasks in flight; no more answers are expected on this line."""
        self._outbox.clear()
        self._stop_deliveries()
        self._fail(tuple(self.under_way), kind, message, _SEE_LOGS)

    def interrupt(self) -> None:
        """Ends running tasks and tasks that have not been sent yet."""
        self.handle.actor.interrupt.remote(self._sweep_id)
        unsent = [*self._outbox, *(order for d in self._deliveries for order in d.orders)]
        self._outbox.clear()
        self._stop_deliveries()
        message = "interrupted before it started"
        self._fail(_ids(unsent), ErrorKind.INTERRUPTED, message, "resume the sweep")

    def _send_orders(self) -> None:
        orders, self._outbox = tuple(self._outbox), []
        has_files = self.handle.shares_files
        self._sent[self.handle.actor.accept.remote(orders, has_files=has_files)] = orders

    def _ask(self) -> None:
        self._question = Question(
            sweep_id=self._sweep_id,
            session=self._question.session,
            acknowledged=tuple(self.acknowledged),
            wait_s=_WAIT_S if self._is_answered else 0.0,
        )
        self._asked = self.handle.actor.ask.remote(self._question)

    def _read(self, answer: Answer) -> None:
        sent = set(self._question.acknowledged)
        self.acknowledged = [task_id for task_id in self.acknowledged if task_id not in sent]
        for measurement in answer.measurements:
            self.under_way.pop(measurement.task_id, None)
        self._arrived += answer.measurements
        if answer.session == self._question.session and not self._is_answered:
            self._is_answered = True
            self._compare(answer)
        if answer.has_hung:
            self._restart()

    def _compare(self, answer: Answer) -> None:
        """Decides from the first answer after a failure which tasks are running or lost.

        Tasks that the host runs for an earlier driver are in flight for this one. Tasks that the
        host does not know were lost with its process.
        """
        unclear = {*_ids(self._outbox)}
        for orders in (*self._sent.values(), *(d.orders for d in self._deliveries)):
            unclear |= {*_ids(orders)}
        gone = self.under_way.keys() - answer.running.keys() - unclear
        message = "the host's process died during the measurement"
        self._fail(sorted(gone), ErrorKind.DEVICE_LOST, message, _SEE_LOGS)
        for task_id, device in answer.running.items():
            if device in self._specs:
                self.under_way.setdefault(task_id, self._specs[device])

    def _deliver(self, orders: Sequence[Order], missing: Sequence[str]) -> None:
        delivery = Delivery(self.handle.actor, orders, missing)
        delivery.start()
        self._deliveries.append(delivery)

    def _stop_deliveries(self) -> None:
        for delivery in self._deliveries:
            delivery.stop()
        self._deliveries.clear()

    def _end_deliveries(self) -> None:
        for delivery in [delivery for delivery in self._deliveries if delivery.is_over]:
            self._deliveries.remove(delivery)
            if delivery.error is None:
                self._outbox += [o for o in delivery.orders if o.task.task_id in self.under_way]
            else:
                message = f"its artifact did not reach the host: {delivery.error}"
                remedy = "check the free space on its disk and the network"
                self._fail(_ids(delivery.orders), ErrorKind.DEVICE_LOST, message, remedy)

    def _stumble(self, error: Exception) -> None:
        """Starts a new session after a lost reply; the host then offers all measurements."""
        import ray

        self.has_died = isinstance(error, ray.exceptions.ActorDiedError)
        self._question = self._new_question()
        self._is_answered = False
        self._pause_until_s = monotonic() + _PAUSE_S

    def _restart(self) -> None:
        """Restarts the host's process, because one of its agents hangs permanently."""
        import ray

        ray.kill(self.handle.actor, no_restart=False)

    def _new_question(self) -> Question:
        return Question(sweep_id=self._sweep_id, session=secrets.token_hex(8))

    def _fail(self, task_ids: Sequence[str], kind: ErrorKind, message: str, remedy: str) -> None:
        failure = Failure(
            kind=kind, message=message, remedy=remedy, is_transient=True, stage="start"
        )
        for task_id in task_ids:
            if (spec := self.under_way.pop(task_id, None)) is not None:
                self._arrived.append(failed(task_id, failure, spec.origin))


def _ids(orders: Sequence[Order]) -> Sequence[str]:
    return [order.task.task_id for order in orders]
