"""Replies of a board that is broken or hostile: each is a typed error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fleetrank.device_agents.board import agent as board_agent
from fleetrank.device_agents.board import board_link
from fleetrank.device_agents.board.agent import BoardAgent, BoardRepeat
from fleetrank.device_agents.board.board_files import files_of
from fleetrank.device_agents.board.board_inference import infer_there
from fleetrank.device_agents.board.board_link import BoardLink, connection_to
from fleetrank.device_agents.board.board_registrar import set_up
from fleetrank.device_agents.board.board_state import BoardOptions, require_identity
from fleetrank.device_agents.board.host_calls import device_there
from fleetrank.device_agents.board.ssh_text import NoConnectionError
from fleetrank.device_agents.contract.agent import never_stop
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts, utc_now
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import (
    BadOutputError,
    DamagedFileError,
    NotFitError,
    PermanentError,
    StoppedError,
    StorageFullError,
    TimedOutError,
    TransientError,
    UnusableDeviceError,
    host_in_use,
)
from fleetrank.device_agents.hosts.files import with_places
from fleetrank.foundation.codec import to_plain
from fleetrank.foundation.files import NoRoomError
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import ErrorKind, Origin, Runtime, Status
from tests.device_agents.conftest import infer_task, make_task

NOWHERE = BoardOptions(ssh="nowhere")
FILES = ("model.onnx", "in.npz")


def link_that_says(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, object]) -> BoardLink:
    """A link to a board with these answers by method; an error among them is raised."""

    def call(link: BoardLink, method: str, *_: object, **options: object) -> object:
        link.boot = answers.get("boot", "first")
        options.get("stop_requested", never_stop)()
        answer = answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer(link) if callable(answer) else answer

    monkeypatch.setattr(BoardLink, "call", call)
    monkeypatch.setattr(BoardLink, "send", lambda *_: None)
    return BoardLink(connection_to(NOWHERE), NOWHERE.python)


@pytest.fixture
def infer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[object], object]:
    """Asks a board for outputs; it lacks no file."""
    for name in FILES:
        (tmp_path / name).write_bytes(name.encode())
    task = infer_task(tmp_path / "model.onnx", tmp_path, task_id="eval")

    def ask(reply: object, missing: Sequence[str] = ()) -> object:
        answers = {"missing": [*missing], "infer": reply, "take": "AAAA"}
        link = link_that_says(monkeypatch, answers)
        return infer_there(link, device_there(NOWHERE), task, 0.0, never_stop)

    return ask


def outputs(**changes: object) -> Mapping[str, object]:
    return {"failure": None, "name": "x", "size_bytes": 3, **changes}


@pytest.mark.parametrize(
    "reply",
    [
        {}, [], outputs(failure={"kind": "no such"}), outputs(name=3), outputs(size_bytes="1"),
        outputs(size_bytes=10**18), outputs(size_bytes=0), outputs(),
    ],
)  # fmt: skip
def test_outputs_that_are_none_are_refused(
    infer: Callable[..., object], reply: object, tmp_path: Path
) -> None:
    with pytest.raises(BadOutputError):
        infer(reply)
    assert not (tmp_path / "out.npz").exists()


def test_a_board_that_wants_other_files_is_refused(infer: Callable[..., object]) -> None:
    with pytest.raises(BadOutputError, match="files"):
        infer(outputs(), missing=["/etc/passwd"])


def no_news(**changes: object) -> dict[str, object]:
    return {"session": "s", "measurements": [], "running": [], "has_hung": False, **changes}


def repeat_of(link: BoardLink, onnx_file: Path, **wishes: Callable[[], bool]) -> BoardRepeat:
    task = make_task(onnx_file, Runtime.ONNX, task_id="t")
    return BoardRepeat(link, NOWHERE, [task], **wishes)


@pytest.mark.parametrize(
    ("boot", "said"), [("first", "the host on the board"), ("second", "the board restarted")]
)
def test_a_restart_of_the_board_is_told_from_an_end_of_its_host(
    boot: str, said: str, onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, object] = {"accept": []}

    def restart(link: BoardLink) -> object:
        link.boot = boot
        return no_news()

    link = link_that_says(monkeypatch, {**answers, "poll": restart})
    with pytest.raises(TransientError, match=said):
        repeat_of(link, onnx_file).measure()


def test_a_line_that_stays_cut_ends_the_repeat(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_agent, "_PAUSE_S", 0.01)
    cut = NoConnectionError("the connection ended", "check the cable")
    link = link_that_says(monkeypatch, {"accept": [], "poll": cut})
    task, options = make_task(onnx_file, Runtime.ONNX), replace(NOWHERE, reconnect_s=0.1)
    with pytest.raises(TransientError, match="the connection ended") as caught:
        BoardRepeat(link, options, [task]).measure()
    assert not isinstance(caught.value, NotFitError), "it was tried"


@pytest.mark.parametrize("reply", [[], {}, no_news(measurements={}), no_news(running=3)])
def test_news_that_are_none_are_refused(
    reply: object, onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = link_that_says(monkeypatch, {"accept": [], "poll": reply})
    with pytest.raises(BadOutputError):
        repeat_of(link, onnx_file).measure()


def test_a_round_has_the_times_of_this_host_and_a_forged_answer_in_it_fails_alone(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board's clock is years slow; all it says of who measured is its own name for it.

    The line is cut once, which ends nothing.
    """
    monkeypatch.setattr(board_agent, "_PAUSE_S", 0.01)
    tasks = [
        make_task(onnx_file, Runtime.ONNX, task_id=f"s/{name}", is_trusted=True) for name in "ab"
    ]
    good, forged = (
        Measurement(
            task_id=f"cpu:s/{task.task_id}", status=Status.OK, origin=Origin.IMPORTED,
            samples_ns=(1_000_000 * sign,), round_id="cpu:s/s/a", started_utc="2023-01-01T00:00",
            worker=WorkerFacts(confinement="walls"),
        )
        for task, sign in zip(tasks, (1, -1), strict=True)
    )  # fmt: skip
    acknowledged: list[object] = []

    def poll(_link: BoardLink) -> object:
        acknowledged.append("poll")
        if len(acknowledged) == 1:
            raise NoConnectionError("the connection ended", "check the cable")
        return no_news(measurements=[to_plain(good), to_plain(forged)])

    link_that_says(monkeypatch, {"accept": [], "poll": poll})
    begun = utc_now()
    one, other = BoardAgent({"ssh": "nowhere"}).measure_round(tasks)
    assert (one.task_id, one.round_id, one.samples_ns) == ("s/a", "s/a", (1_000_000,))
    assert (one.origin, one.worker) == (Origin.MEASURED, WorkerFacts())
    assert begun <= str(one.started_utc) <= str(one.finished_utc) <= utc_now()
    assert other.failure is not None
    assert (other.task_id, other.failure.kind) == ("s/b", ErrorKind.BAD_OUTPUT)
    assert len(acknowledged) == 3, "cut, asked for, and acknowledged"


def test_a_stop_is_said_to_the_board(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    stop = StoppedError("stopped", "resume")
    link = link_that_says(monkeypatch, {"accept": [], "poll": stop, "interrupt": said.append})
    with pytest.raises(StoppedError):
        repeat_of(link, onnx_file).measure()
    assert said == [link]


def test_a_repeat_that_does_not_end_is_given_up(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(board_agent, "_limit_s", lambda _tasks: -board_agent.TURN_S)
    running = no_news(running=[["cpu:t/t", "cpu"]])
    link = link_that_says(monkeypatch, {"accept": [], "poll": running, "interrupt": said.append})
    with pytest.raises(TimedOutError, match="time limit"):
        repeat_of(link, onnx_file).measure()
    assert said == [link]


def test_the_wish_to_end_a_round_is_said_once(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    polls = iter([no_news(running=[["cpu:t/t", "cpu"]]), no_news()])
    answers = {"accept": [], "poll": lambda _: next(polls), "finish_rounds": said.append}
    link = link_that_says(monkeypatch, answers)
    with pytest.raises(TransientError):
        repeat_of(link, onnx_file, finish=lambda: True).measure()
    assert said == [link]


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
    names = files_of(task)
    assert names == {
        str(onnx_file): f"{task.artifact_sha256}.onnx", str(weights): f"{'0' * 64}.bin",
        str(values): f"{file_sha256(values)}.npy",
    }  # fmt: skip
    there = with_places(task, names.__getitem__)
    assert there.execution.inputs[0].values.path == names[str(values)]
    assert (there.artifact_path, there.weights_path) == (names[str(onnx_file)], names[str(weights)])


def test_another_board_is_refused() -> None:
    with pytest.raises(UnusableDeviceError, match="another board"):
        require_identity(replace(NOWHERE, board_hash="0" * 16), "1" * 16)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (host_in_use("sweep s-1"), NotFitError),
        (NoRoomError("full", "free some"), StorageFullError),
        (DamagedFileError("damaged", "again"), TransientError),
        (ValueError("wrong"), PermanentError),
    ],
)
def test_an_error_of_the_board_is_one_here(error: Exception, kind: type[Exception]) -> None:
    plain = to_plain(failure_from_error(error, None))
    assert type(board_link._error_in({"error": plain})) is kind
    assert isinstance(board_link._error_in({"problem": "x"}), TransientError)


def test_a_board_that_does_not_state_its_python_is_not_set_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = link_that_says(monkeypatch, {"inspect": {"python": "3.11.2"}})
    with pytest.raises(BadOutputError, match="BoardProbe"):
        set_up(link, NOWHERE, ["onnx"], print)


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
    link = link_that_says(monkeypatch, {"accept": [name]})
    one = BoardRepeat(link, NOWHERE, [task])
    with host_lease("sweep s-2"), pytest.raises(NotFitError, match="used by sweep s-2"):
        one.measure()
