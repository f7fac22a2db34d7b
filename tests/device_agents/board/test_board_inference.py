"""A board runs a file over given inputs: the outputs are those of this host, and nothing stays."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ssh_board import SshBoard
from waiting import wait_until

from fleetrank.device_agents.board import board_inference
from fleetrank.device_agents.board.there.board_host import BoardHost
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.device_agents.errors import DamagedFileError
from fleetrank.device_agents.worker.infer import infer
from fleetrank.foundation.vocabulary import ErrorKind
from tests.device_agents.conftest import infer_task, sha256

pytestmark = pytest.mark.slow


def task_of(folder: Path, artifact: Path, n_cases: int = 3, **changes: object) -> InferTask:
    cases = np.random.default_rng(1).standard_normal((n_cases, 3, 16, 16), dtype=np.float32)
    np.savez(folder / "in.npz", input_0=cases)
    task = infer_task(artifact, folder, task_id="eval")
    return replace(task, **changes)  # type: ignore[arg-type]


def stored_names(board: SshBoard) -> list[str]:
    return sorted(path.name for path in board.files)


def outputs_on(board: SshBoard) -> list[Path]:
    return list(board.cache.glob("host-*/outputs/*"))


def failure_of(found: Failure | None) -> Failure:
    assert found.remedy
    return found


@pytest.mark.thorough
def test_the_outputs_are_those_of_this_host_and_only_the_artifact_stays(
    board: SshBoard, onnx_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    here, there = task_of(tmp_path / "here", onnx_file), task_of(tmp_path, onnx_file)
    assert infer(here, lambda _: None, None) is None
    agent = board.agent()
    assert agent.infer(there) is None
    with np.load(here.outputs_path) as ours, np.load(there.outputs_path) as theirs:
        np.testing.assert_allclose(theirs["output_0"], ours["output_0"], rtol=1e-6, atol=1e-7)
    (kept,) = board.files
    assert kept.name == f"{sha256(onnx_file)}.onnx"
    inode = kept.stat().st_ino
    assert agent.infer(there) is None
    assert kept.stat().st_ino == inode, "the artifact is not sent again"
    assert stored_names(board) == [kept.name]
    assert outputs_on(board) == []
    assert board.kept == []


@pytest.mark.thorough
def test_a_piece_that_is_damaged_is_noticed(
    board: SshBoard, onnx_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = board_inference._piece
    monkeypatch.setattr(board_inference, "_piece", lambda *given: b"?" + whole(*given)[1:])
    task = task_of(tmp_path, onnx_file)
    found = failure_of(board.agent().infer(task))
    assert found.kind is ErrorKind.BAD_OUTPUT
    assert "damaged" in found.message
    assert [path.name for path in tmp_path.iterdir()] == ["in.npz"]


def test_outputs_are_taken_once(tmp_path: Path) -> None:
    host, name = BoardHost(tmp_path), f"{'0' * 64}.npz"
    (tmp_path / "outputs" / name).write_bytes(b"outputs")
    assert host.take(name, 3) == b"puts"
    for gone in (name, "../spool.jsonl"):
        with pytest.raises(DamagedFileError, match="does not have"):
            host.take(gone, 0)


@pytest.mark.thorough
def test_a_worker_that_dies_is_a_failure_and_leaves_nothing(
    board: SshBoard, looping_onnx: Path, onnx_file: Path, tmp_path: Path
) -> None:
    agent = board.agent()
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(agent.infer, looping(tmp_path, looping_onnx))
        wait_until(lambda: bool(board.processes("worker")), "the worker", 60.0)
        wait_until(lambda: bool(outputs_on(board)), "its outputs", 60.0)
        for process in board.processes("worker"):
            process.kill()
        found = failure_of(running.result(120.0))
    assert found.kind in {ErrorKind.CRASHED, ErrorKind.OUT_OF_MEMORY}
    assert stored_names(board) == [f"{sha256(looping_onnx)}.onnx"]
    assert outputs_on(board) == []


@pytest.mark.thorough
def test_a_worker_ends_when_the_evaluation_does(
    board: SshBoard, looping_onnx: Path, tmp_path: Path
) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        task = looping(tmp_path, looping_onnx)
        running = pool.submit(board.agent().infer, task, stop.is_set)
        wait_until(lambda: bool(board.processes("worker")), "the worker", 60.0)
        stop.set()
        assert failure_of(running.result(120.0)).kind is ErrorKind.INTERRUPTED
    wait_until(lambda: not board.processes("worker"), "the worker's end", 30.0)


def looping(folder: Path, path: Path, **changes: object) -> InferTask:
    """A task whose model does not end."""
    np.savez(folder / "loop.npz", input_0=np.zeros((1, 1), np.float32))
    given: dict[str, object] = {"inputs_path": str(folder / "loop.npz")}
    return task_of(folder, path, **{**given, **changes})
