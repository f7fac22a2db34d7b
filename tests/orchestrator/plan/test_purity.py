"""Planning, keys and rows open no file: the identity of a model is read once, before them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleetrank.foundation.vocabulary import Family
from fleetrank.models.cards.card import ModelCard, Source
from fleetrank.models.cards.identity import resolve
from fleetrank.orchestrator.identity import Attempt, DevicePlace, Plan, Repeat
from fleetrank.orchestrator.plan.estimate import exporting_s, measuring_s
from fleetrank.orchestrator.plan.plan import make_plan, narrow, select_models
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

_EVENTS = {"open", "os.listdir", "os.scandir", "os.remove", "subprocess.Popen", "socket.connect"}
_BOX = DeviceFile(name="box", kind="cpu")
_DEVICES = {"box": _BOX, "local-cpu": _BOX}
_PLACES = {"box": DevicePlace(device="box", host="h", needs_quiet=True)}
_listeners: list[list[str]] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in _EVENTS:
        for seen in _listeners:
            seen.append(f"{event} {arguments[:1]}")


@pytest.fixture(scope="module")
def watched() -> Callable[[], object]:
    """A block whose accesses to files, processes and the network are listed."""
    sys.addaudithook(_note)  # a hook stays for the life of the process

    @contextmanager
    def watch() -> Iterator[list[str]]:
        seen: list[str] = []
        _listeners.append(seen)
        try:
            yield seen
        finally:
            _listeners.remove(seen)

    return watch


def _plan(models: list) -> Plan:
    spec = SweepSpec.model_validate({"name": "s", "models": "all", "runtimes": "onnx"})
    return narrow(make_plan(spec, models, _DEVICES), "*")


def test_an_opened_file_is_noticed(watched, tmp_path: Path) -> None:
    with watched() as seen:
        (tmp_path / "a").write_text("1")
    assert seen


def test_a_plan_its_estimate_and_its_rows_open_no_file(watched, tmp_path: Path, translate) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(b"x")
    mine = ModelCard(name="mine", family=Family.HYBRID, source=Source.FILE, entry=str(path))
    spec = SweepSpec.model_validate({"name": "s", "models": "mine"})
    models = [resolve(card) for card in select_models(spec, {"mine": mine})]
    path.unlink()

    def steps() -> str:
        plan = _plan(models)
        measuring_s(plan, {}, _PLACES)
        exporting_s([cell.export for cell in plan.cells], 2)
        repeat = Repeat(cell=plan.cells[0], index=0)
        return str(translate(attempt=Attempt(repeat=repeat, number=0))["card_sha256"])

    steps()  # the first call may import modules
    with watched() as seen:
        sha256 = steps()
    assert seen == []
    assert sha256 == models[0].sha256
