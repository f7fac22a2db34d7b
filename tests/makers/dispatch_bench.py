"""A plan of small cells, hosts that answer as a test says, and a controller between them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import (
    Execution,
    MeasurePolicy,
    MeasureTask,
    RepeatLimits,
)
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    Family,
    FlopsMethod,
    Format,
    Origin,
    Runtime,
    Status,
    Tier,
)
from fleetrank.models.cards.card import Artifact, Cost, ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.orchestrator.dispatch.controller import Controller, Recorder
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import Exports, SweepWork
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.identity import Cell, DevicePlace, Plan, SweepFacts
from fleetrank.orchestrator.progress_events import Event
from fleetrank.orchestrator.rows import Row

Answer = Callable[[str, MeasureTask], Failure | None]


def make_cell(device: str, number: int) -> Cell:
    card = ModelCard(
        name=f"model{number}",
        family=Family.MOBILE_CNN,
        source=Source.TORCHVISION,
        entry="resnet18",
    )
    return Cell(
        cell_key=f"{device}-{number}",
        platform_key=f"{device}/onnx",
        device=device,
        export=ExportRequest(model=resolve(card), weights=Weights(), format=Format.ONNX),
        execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
    )


def make_artifact(number: int) -> Artifact:
    return Artifact(
        path=f"/artifacts/{number}.onnx",
        sha256=str(number),
        size_bytes=1,
        format=Format.ONNX,
        cost=Cost(macs=10, parameters=5, method=FlopsMethod.COUNTED),
        versions=(),
        max_relative_error=None,
        is_trusted=True,
    )


def new_work(
    devices: Mapping[str, bool],
    *,
    n_models: int = 2,
    repeats: int = 2,
    max_attempts: int = 3,
    broken: Mapping[int, Failure] | None = None,
) -> SweepWork:
    """Work for some devices with some models each; `broken` models have no artifact."""
    broken = broken or {}
    cells = tuple(make_cell(device, number) for device in devices for number in range(n_models))
    requests = {cell.export: int(cell.export.card.name[5:]) for cell in cells}
    return SweepWork(
        sweep=SweepFacts(
            sweep_id="s-20260101T000000-0000",
            seed=0,
            fleetrank_version="0",
            git_commit=None,
        ),
        plan=Plan(
            name="s",
            seed=0,
            repeats=repeats,
            limits=RepeatLimits(max_attempts=max_attempts, timeout_s=10.0),
            canary_every=10,
            policy=MeasurePolicy(),
            cells=cells,
        ),
        places={
            name: DevicePlace(device=name, host="local", host_hash="h", needs_quiet=needs_quiet)
            for name, needs_quiet in devices.items()
        },
        exports=Exports(
            artifacts={r: make_artifact(n) for r, n in requests.items() if n not in broken},
            failures={r: broken[n] for r, n in requests.items() if n in broken},
        ),
    )


class ScriptedHosts:
    """Answers every task at the next poll as `answer` says; time passes only in `poll`."""

    def __init__(self, devices: Sequence[str], answer: Answer) -> None:
        self.devices = list(devices)
        self.answer = answer
        self.now_s = 0.0
        self.running: dict[str, MeasureTask] = {}
        self.submitted: list[tuple[str, MeasureTask]] = []
        self.most_at_once = 0
        self.probes: deque[bool] = deque()
        self.n_probes = 0
        self.is_interrupted = False
        self.finishes_rounds = False
        self.on_poll: Callable[[], None] = lambda: None
        self.left_running: dict[str, str] = {}
        self.offered: list[Measurement] = []
        self.acknowledged: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def clock(self) -> float:
        return self.now_s

    def facts(self) -> Mapping[str, DeviceFacts]:
        return dict.fromkeys(self.devices, FACTS)

    def submit(self, device: str, task: MeasureTask) -> None:
        assert device not in self.running, "two tasks on one device"
        self.running[device] = task
        self.submitted.append((device, task))
        self.most_at_once = max(self.most_at_once, len(self.running))

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        self.now_s += max(timeout_s, 0.01)
        self.on_poll()
        offered, self.offered = self.offered, []
        done = [
            _measurement(task, _INTERRUPTED if self.is_interrupted else self.answer(device, task))
            for device, task in self.running.items()
        ]
        self.running.clear()
        return offered + done

    def in_flight(self) -> Mapping[str, str]:
        return self.left_running

    def acknowledge(self, task_ids: Sequence[str]) -> None:
        self.acknowledged += task_ids

    def joined(self) -> Sequence[str]:
        return ()

    def probe(self, device: str) -> DeviceFacts | Failure:
        self.n_probes += 1
        is_well = self.probes.popleft() if self.probes else True
        return FACTS if is_well else new_failure(ErrorKind.DEVICE_LOST)

    def finish_rounds(self) -> None:
        self.finishes_rounds = True

    def interrupt(self) -> None:
        self.is_interrupted = True


FACTS = DeviceFacts(
    device_model="Box", tier=Tier.CPU, origin=Origin.SIMULATED, os="Linux", arch="x86_64"
)


def new_failure(kind: ErrorKind, *, is_transient: bool = True) -> Failure:
    return Failure(kind=kind, message=kind.value, remedy="none", is_transient=is_transient)


_INTERRUPTED = new_failure(ErrorKind.INTERRUPTED)


def _measurement(task: MeasureTask, failure: Failure | None) -> Measurement:
    return Measurement(
        task_id=task.task_id,
        status=Status.OK if failure is None else Status.FAILED,
        origin=Origin.SIMULATED,
        failure=failure,
        samples_ns=(1000, 2000, 3000) if failure is None else (),
        started_utc="2026-01-01T00:00:00+00:00",
        finished_utc="2026-01-01T00:00:01+00:00",
    )


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
            hosts=executor,
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
