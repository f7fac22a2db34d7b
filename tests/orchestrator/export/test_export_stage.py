"""Files are made once, verified, and one that cannot be made stops nothing."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from waiting import wait_until

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.foundation.lease import host_lease, is_host_wanted
from fleetrank.foundation.vocabulary import ErrorKind, Family, Format
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import (
    Cost,
    ExportRequest,
    ModelCard,
    Source,
    StagedExport,
    Weights,
)
from fleetrank.models.cards.identity import resolve
from fleetrank.models.errors import ExportError
from fleetrank.models.export.process import ExportOrder
from fleetrank.orchestrator import export_lines
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.export import build_artifacts
from fleetrank.orchestrator.export_lines import may_start
from fleetrank.orchestrator.one_export import ExportTools
from fleetrank.orchestrator.progress_events import Event, ExportFinished, Notice
from fleetrank.orchestrator.progress_words import STOPPING

OUTPUTS = np.linspace(1, 2, 16 * 10).reshape(16, 10).astype(np.float32)
GIB = 2**30


def request(name: str, format_: Format = Format.ONNX) -> ExportRequest:
    card = ModelCard(name=name, family=Family.HYBRID, source=Source.TORCHVISION, entry="resnet18")
    return ExportRequest(model=resolve(card), weights=Weights(), format=format_)


class Stage:
    """The real cache and the real comparison around an exporter and a worker of the test's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.n_exports = 0
        self.at_once = self.most_at_once = 0
        self.broken: set[str] = set()
        self.factor = 1.0
        self.infer_failure: Failure | None = None
        self.on_export: Callable[[], None] = lambda: None
        self.switch = StopSwitch()
        self.cache = ArtifactCache(folder)
        self._lock = threading.Lock()
        self.children: list[Child] = []
        monkeypatch.setattr(export_lines, "ExportChild", self.new_child)

    def new_child(self) -> "Child":
        with self._lock:
            self.children.append(Child(self.export))
        return self.children[-1]

    def export(self, request: ExportRequest, out_dir: Path) -> StagedExport:
        with self._lock:
            self.n_exports += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.on_export()
        try:
            if request.card.name in self.broken:
                raise ExportError("an operator is not supported", "leave it out")
            path = out_dir / "model.onnx"
            path.write_text(request.card.name)
            np.savez(out_dir / "in.npz", input_0=OUTPUTS)
            np.savez(out_dir / "ref.npz", output_0=OUTPUTS)
            return StagedExport(
                path=path,
                format=request.format,
                cost=Cost(macs=1, parameters=1, method=None),
                versions=(),
                inputs_path=out_dir / "in.npz",
                reference_path=out_dir / "ref.npz",
            )
        finally:
            with self._lock:
                self.at_once -= 1

    def infer(self, task: InferTask) -> Failure | None:
        if self.infer_failure is None:
            np.savez(task.outputs_path, output_0=OUTPUTS * np.float32(self.factor))
        return self.infer_failure

    def build(self, *requests: ExportRequest, primed: tuple[Format, ...] = ()):
        tools = ExportTools(
            cache=self.cache, infer=self.infer, emit=self.events.append, switch=self.switch
        )
        return build_artifacts(requests, primed, tools)


class Child:
    """One exporting process of the test's."""

    def __init__(self, export: Callable[..., StagedExport]) -> None:
        self._export = export
        self.made: list[ExportRequest] = []
        self.has_ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.has_ended.set()

    def export(self, order: ExportOrder, timeout_s: float) -> StagedExport:
        assert timeout_s > 0
        self.made.append(order.request)
        return self._export(order.request, order.out_dir)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path / "artifacts", monkeypatch)


def test_equal_requests_are_one_export_and_a_second_sweep_makes_none(stage: Stage) -> None:
    first = stage.build(request("a"), request("a"), request("b"))
    assert (stage.n_exports, set(first.artifacts)) == (2, {request("a"), request("b")})
    again = stage.build(request("a"), request("b"))
    assert stage.n_exports == 2
    assert again.artifacts == first.artifacts
    finished = [event for event in stage.events if isinstance(event, ExportFinished)]
    assert [event.is_cached for event in finished] == [False, False, True, True]
    assert first.artifacts[request("a")].max_relative_error == 0.0


def test_one_process_exports_all_files_of_a_format(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_lines, "usable_cores", lambda: 1)
    wanted = [request(name, f) for name in "abc" for f in (Format.ONNX, Format.PT2)]
    done = stage.build(*wanted)
    assert set(done.artifacts) == set(wanted)
    made = [[(one.card.name, one.format) for one in child.made] for child in stage.children]
    assert made == [[(name, f) for name in "abc"] for f in (Format.ONNX, Format.PT2)]
    assert all(child.has_ended.wait(60) for child in stage.children)


def test_a_free_core_exports_beside_the_process_of_the_same_format(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_lines, "usable_cores", lambda: 2)
    both = threading.Barrier(2)
    stage.on_export = lambda: both.wait(60)
    assert len(stage.build(request("a"), request("b")).artifacts) == 2
    assert [len(child.made) for child in stage.children] == [1, 1]


@pytest.mark.slow
def test_exports_give_way_between_two_models_to_a_measurement_that_waits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_lines, "usable_cores", lambda: 1)
    monkeypatch.setattr(export_lines, "_AWAY_S", 0.0)
    n_before: list[int] = []

    def measure() -> None:
        with host_lease("sweep s-1, which measures on this host"):
            n_before.append(stage.n_exports)

    waiting = threading.Thread(target=measure)

    def begin_to_wait() -> None:
        if stage.n_exports == 1:
            waiting.start()
            wait_until(is_host_wanted, "the measurement that waits")

    stage.on_export = begin_to_wait
    done = stage.build(*map(request, "abc"))
    waiting.join(60)
    assert n_before == [1]
    assert set(done.artifacts) == set(map(request, "abc"))
    assert done.is_complete


def test_a_model_that_cannot_be_exported_leaves_the_others_alone(stage: Stage) -> None:
    stage.broken = {"a"}
    done = stage.build(request("a"), request("b"))
    assert set(done.artifacts) == {request("b")}
    failure = done.failures[request("a")]
    assert (failure.kind, failure.is_transient) == (ErrorKind.EXPORT_FAILED, False)
    assert "operator is not supported" in failure.message
    assert done.is_complete


def test_a_file_that_computes_something_else_is_refused_and_not_kept(stage: Stage) -> None:
    stage.factor = 1.01
    done = stage.build(request("a"))
    assert done.failures[request("a")].kind is ErrorKind.VERIFICATION_FAILED
    assert stage.cache.entries() == []
    assert list((stage.folder / "staging").iterdir()) == []


def test_a_worker_that_dies_over_a_file_fails_that_file_only(stage: Stage) -> None:
    stage.infer_failure = Failure(
        kind=ErrorKind.CRASHED, message="SIGSEGV", remedy="none", is_transient=True
    )
    failure = stage.build(request("a")).failures[request("a")]
    assert (failure.kind, failure.stage, failure.is_transient) == (
        ErrorKind.CRASHED, "verify", False,
    )  # fmt: skip


def test_primers_are_made_beside_the_models_and_may_fail(stage: Stage) -> None:
    done = stage.build(request("a"), primed=(Format.ONNX,))
    assert set(done.primers) == {Format.ONNX}
    assert set(done.artifacts) == {request("a")}
    stage.broken = {"primer"}
    done = stage.build(request("a"), primed=(Format.TFLITE,))
    assert (done.primers, done.failures) == ({}, {})


def test_a_stop_lets_running_exports_finish_and_begins_no_other(stage: Stage) -> None:
    def press_once() -> None:
        with lock:
            if not stage.switch.is_stopping:
                stage.switch.press()

    # Two exports run side by side, and a second press would be an immediate stop.
    lock, stage.on_export = threading.Lock(), press_once
    done = stage.build(*(request(str(number)) for number in range(9)))
    assert not done.is_complete
    assert 0 < len(done.artifacts) < 9
    notices = [event.message for event in stage.events if isinstance(event, Notice)]
    assert notices == [STOPPING]


def test_a_defect_while_exporting_is_a_failure_and_not_a_hang(stage: Stage) -> None:
    def explode() -> None:
        raise ZeroDivisionError

    stage.on_export = explode
    done = stage.build(request("a"))
    assert "ZeroDivisionError" in done.failures[request("a")].message


def test_exports_run_side_by_side_only_as_far_as_memory_and_cores_go() -> None:
    plenty = {"available_bytes": 8 * GIB, "cores": 2}
    assert may_start(9 * GIB, [], **plenty), "the first one always may"
    assert may_start(4 * GIB, [4 * GIB], **plenty)
    assert not may_start(5 * GIB, [4 * GIB], **plenty)
    assert not may_start(1, [1, 1], **plenty)
