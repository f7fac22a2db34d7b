"""Replies of a board that is broken or hostile: each is a typed error."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fleetrank.device_agents.board import agent as board_agent
from fleetrank.device_agents.board.agent import BoardRepeat, Wishes, infer_there
from fleetrank.device_agents.board.board_link import BoardLink
from fleetrank.device_agents.board.board_registrar import set_up
from fleetrank.device_agents.board.board_state import BoardOptions
from fleetrank.device_agents.board.ssh import NoConnectionError, SshConnection
from fleetrank.device_agents.contract.agent import never_stop
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import BadOutputError, NotFitError, TransientError
from fleetrank.foundation.files import file_sha256
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.vocabulary import Runtime
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

    def ask(_link: BoardLink, command: str, *_: object, **__: object) -> Reply:
        if command == "measure":
            raise NoConnectionError("no answer", "check the cable")
        return {"prepare": prepared, "fetch": {"none": True, "boot": boot}}[command]

    monkeypatch.setattr(BoardLink, "ask", ask)
    link = BoardLink(SshConnection(NOWHERE.target), NOWHERE.python, "test")
    task = make_task(onnx_file, Runtime.ONNX)
    with pytest.raises(TransientError, match=said):
        BoardRepeat(link, NOWHERE, [task], Wishes()).measure()


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
