"""The interfaces that a controller acts through."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from fleetrank.orchestrator.dispatch.drive.executor import Executor
from fleetrank.orchestrator.dispatch.drive.row_sink import RowSink
from fleetrank.orchestrator.dispatch.drive.stop_switch import StopSwitch
from fleetrank.orchestrator.progress.events import Subscriber


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The interfaces of one controller to the outside.

    Attributes:
        emit: takes progress events.
        clock: seconds of a monotonic clock.
    """

    executor: Executor
    sink: RowSink
    emit: Subscriber
    switch: StopSwitch
    clock: Callable[[], float] = perf_counter
