"""A controller with everything around it in memory."""

from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.foundation.vocabulary import Origin, Status
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.drive.controller import Controller
from fleetrank.orchestrator.dispatch.drive.recorder import Recorder
from fleetrank.orchestrator.dispatch.drive.stop_switch import StopSwitch
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.progress.events import Event
from fleetrank.orchestrator.rows.measured_columns import Row


class Sink:
    """Keeps rows in memory; may be told to be full."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.room: int | None = None
        self.pending: list[Row] = []

    def append(self, row: Row, _profile: object = None) -> None:
        self.pending.append(row)
        self.flush()

    def flush(self) -> None:
        while self.pending:
            if self.room is not None and len(self.rows) >= self.room:
                raise StoreError("the disk is full", "free some space")
            self.rows.append(self.pending.pop(0))

    def publish(self) -> None: ...


class Bench:
    """A controller and everything around it."""

    def __init__(self, work, executor, rows=()) -> None:
        self.sink, self.switch = Sink(), StopSwitch()
        self.events: list[Event] = []
        self.tally = Tally.of(rows)
        self.executor = executor
        self.controller = Controller(
            work,
            self.tally,
            executor=executor,
            recorder=Recorder(work, self.sink, self.events.append),
            switch=self.switch,
            clock=executor.clock,
        )

    def stored(self) -> list[tuple[object, object, object]]:
        return [(row["cell_key"], row["repeat"], row["attempt"]) for row in self.sink.rows]


def always_well(device: str, task: MeasureTask) -> Failure | None:
    return None


def late(task_id: str, failure: Failure | None = None) -> Measurement:
    return Measurement(
        task_id=task_id,
        status=Status.OK if failure is None else Status.FAILED,
        origin=Origin.SIMULATED,
        failure=failure,
        samples_ns=() if failure else (5000,),
        started_utc="2026-01-01T00:00:00+00:00",
    )
