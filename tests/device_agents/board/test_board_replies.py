"""Replies of a board that is broken or hostile: each is a typed error."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetrank.device_agents.board import agent as board_agent
from fleetrank.device_agents.board import board_link
from fleetrank.device_agents.board.agent import BoardRepeat, Wishes
from fleetrank.device_agents.board.board_files import files_of, prepare, with_paths
from fleetrank.device_agents.board.board_inference import infer_there
from fleetrank.device_agents.board.board_link import BoardBusyError, BoardLink
from fleetrank.device_agents.board.board_registrar import set_up
from fleetrank.device_agents.board.board_state import BoardOptions
from fleetrank.device_agents.board.ssh import Dialogue, SshConnection
from fleetrank.device_agents.board.ssh_text import NoConnectionError
from fleetrank.device_agents.board.there.line import FINISH
from fleetrank.device_agents.contract.agent import never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Conditions, Measurement
from fleetrank.device_agents.contract.task import CanaryTask, Execution, MeasureTask
from fleetrank.device_agents.errors import (
    BadOutputError,
    NotFitError,
    TransientError,
    UnusableDeviceError,
)
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Origin, Runtime, Status
from tests.device_agents.conftest import infer_task, make_task

Reply = Mapping[str, object]
NOWHERE = BoardOptions(ssh="nowhere")
FILES = ("model.onnx", "in.npz")


def link_that_says(monkeypatch: pytest.MonkeyPatch, replies: Mapping[str, Reply]) -> BoardLink:
    """A link to a board with these replies by command; it takes every file."""
    monkeypatch.setattr(BoardLink, "ask", lambda _self, command, *_, **__: replies[command])
    monkeypatch.setattr(BoardLink, "push", lambda *_, **__: None)
    return BoardLink(SshConnection(NOWHERE.target), NOWHERE.python, "test")


@pytest.fixture
def infer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Reply], object]:
    """Asks a board for outputs; it lacks no file."""
    for name in FILES:
        (tmp_path / name).write_bytes(name.encode())
    task = infer_task(tmp_path / "model.onnx", tmp_path, task_id="eval")

    def ask(reply: Reply, *, is_placed: bool = True) -> object:
        names = [f"{file_sha256(tmp_path / name)}{Path(name).suffix}" for name in FILES]
        paths = {name: f"/there/{name}" for name in names} if is_placed else {}
        prepared = {"paths": paths, "missing": [], "state": {}, "identity": None, "boot": None}
        replies = {"prepare": prepared, "infer": reply, "take": {"content": "AAAA"}}
        link = link_that_says(monkeypatch, replies)
        return infer_there(link, NOWHERE, task, never_stop)

    return ask


@pytest.mark.parametrize(
    "reply",
    [
        {}, {"failure": {"kind": "no such"}}, {"name": 3, "size": 1}, {"name": "x", "size": "1"},
        {"name": "x", "size": 10**30}, {"name": "x", "size": 3},
    ],
)  # fmt: skip
def test_outputs_that_are_none_are_refused(
    infer: Callable[..., object], reply: Reply, tmp_path: Path
) -> None:
    with pytest.raises(BadOutputError):
        infer(reply)
    assert not (tmp_path / "out.npz").exists()


def test_files_without_a_place_are_refused(infer: Callable[..., object]) -> None:
    with pytest.raises(BadOutputError, match="files"):
        infer({"name": "x", "size": 3}, is_placed=False)


@pytest.mark.parametrize(
    ("boot", "said"), [("first", "the connection ended"), ("second", "the board restarted")]
)
def test_a_restart_is_told_from_a_line_that_was_cut(
    boot: str, said: str, onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{file_sha256(onnx_file)}.onnx"
    prepared = {
        "paths": {name: "/there"}, "missing": [], "state": {}, "identity": None, "boot": "first"
    }  # fmt: skip

    def ask(_link: BoardLink, command: str, *_: object, **options: object) -> Reply:
        if command == "measure":
            assert options["finish_requested"] is wishes.finish
            raise NoConnectionError("no answer", "check the cable")
        return {"prepare": prepared, "fetch": {"none": True, "boot": boot}}[command]

    monkeypatch.setattr(BoardLink, "ask", ask)
    link = BoardLink(SshConnection(NOWHERE.target), NOWHERE.python, "test")
    task, wishes = make_task(onnx_file, Runtime.ONNX), Wishes(finish=lambda: True)
    with pytest.raises(TransientError, match=said):
        BoardRepeat(link, NOWHERE, [task], wishes).measure()


def test_the_wish_to_end_a_round_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bytes] = []

    def run(_self: SshConnection, _argv: object, *, dialogue: Dialogue, **_: object) -> None:
        said.extend(dialogue.meanwhile() for _ in range(2))
        raise NoConnectionError("no answer", "check the cable")

    monkeypatch.setattr(SshConnection, "run", run)
    link = BoardLink(SshConnection(NOWHERE.target), NOWHERE.python, "test")
    with pytest.raises(NoConnectionError):
        link.ask("measure", {}, finish_requested=lambda: True)
    assert said == [FINISH, b""]


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [
        (True, False, ["canary", "cell"]),
        (False, True, ["cell", "canary"]),
        (False, False, ["cell"]),
    ],
)
def test_a_canary_runs_before_and_after_the_cell_where_it_is_due(
    before: bool, after: bool, order: list[str], onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, finish = [], lambda: True
    seen = Measurement(
        task_id="t", status=Status.OK, origin=Origin.MEASURED, samples_ns=(100,),
        conditions_before=Conditions(), conditions_after=Conditions(),
    )  # fmt: skip

    def repeat(
        _link: BoardLink, _options: object, tasks: list[MeasureTask], wishes: Wishes
    ) -> object:
        assert wishes.finish is finish
        ran.append("canary" if tasks[0].artifact_path == "canary" else "cell")
        return SimpleNamespace(measure=lambda: [seen])

    monkeypatch.setattr(board_agent, "BoardRepeat", repeat)
    canary = CanaryTask(
        artifact_path="canary", artifact_sha256="0", affinity=None, reference_ns=100, spread=None,
        runs_before=before, runs_after=after,
    )  # fmt: skip
    agent = board_agent.BoardAgent({"ssh": "nowhere"})
    task = make_task(onnx_file, Runtime.ONNX, canary=canary)
    (found,) = agent.measure_round([task], finish_requested=finish)
    assert ran == order
    stated = (found.conditions_before.canary_ns, found.conditions_after.canary_ns)
    assert stated == (100 if before else None, 100 if after else None)


def test_weights_and_values_of_inputs_travel_with_an_artifact(
    onnx_file: Path, tmp_path: Path
) -> None:
    values, weights = tmp_path / "it's.npy", tmp_path / f"{'0' * 64}.bin"
    values.write_bytes(b"values")
    stated = ModelInput(
        name="x", shape=(1,), dtype="float32", values=Values(path=str(values), sha256="1")
    )
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", inputs=(stated,))
    task = make_task(onnx_file, Runtime.ONNX, execution=execution, weights_path=str(weights))
    found = {path: one.sha256 for path, one in files_of(task).items()}
    assert found == {
        str(onnx_file): task.artifact_sha256, str(weights): "0" * 64,
        str(values): file_sha256(values),
    }  # fmt: skip
    there = with_paths(task, {path: f"/{sha}" for path, sha in found.items()})
    assert there.execution.inputs[0].values.path == f"/{file_sha256(values)}"
    assert (there.artifact_path, there.weights_path) == (f"/{task.artifact_sha256}", f"/{'0' * 64}")


def test_another_board_and_one_in_use_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    link = link_that_says(monkeypatch, {"prepare": {"identity": "1" * 16}})
    with pytest.raises(UnusableDeviceError, match="another board"):
        prepare(link, "0" * 16, {}, never_stop)
    with pytest.raises(BoardBusyError, match="in use: sweep s-1") as caught:
        board_link._checked({"busy": "sweep s-1"})
    assert failure_from_error(caught.value, "start").wait is not None


def test_a_board_that_does_not_state_its_python_is_not_set_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = link_that_says(monkeypatch, {"platform": {"python": "3.11.2"}})
    with pytest.raises(BadOutputError, match="platform"):
        set_up(link, ["onnx"], print)


def test_a_file_that_waits_for_this_host_names_who_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_agent, "HOST_PATIENCE_S", 0.0)
    model = tmp_path / "model.onnx"
    model.write_bytes(b"model")
    task = MeasureTask(
        task_id="s-1/c/0/0",
        artifact_path=str(model),
        artifact_sha256=file_sha256(model),
        execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
    )
    name = f"{task.artifact_sha256}.onnx"
    prepared = {
        "paths": {name: "/there"}, "missing": [name], "state": {}, "identity": None, "boot": None,
    }  # fmt: skip
    link = link_that_says(monkeypatch, {"prepare": prepared})
    one = board_agent.BoardRepeat(link, NOWHERE, [task], board_agent.Wishes())
    with host_lease("sweep s-2"), pytest.raises(NotFitError, match="used by sweep s-2"):
        one.measure()
