"""A board runs a file over given inputs: the outputs are those of this host, and nothing stays."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ssh_board import SshBoard
from wording import has

from fleetrank.device_agents.board.board_state import BoardOptions
from fleetrank.device_agents.board.host_calls import device_there
from fleetrank.device_agents.board.there.board_host import BoardHost
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.failures import interrupted
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import Execution, InferTask
from fleetrank.device_agents.errors import DamagedFileError
from fleetrank.device_agents.proving import prove
from fleetrank.device_agents.registry import load_kind
from fleetrank.device_agents.worker.infer import infer
from fleetrank.foundation.vocabulary import Runtime
from tests.device_agents.conftest import QUICK, infer_task, make_task, sha256

pytestmark = pytest.mark.slow


def task_of(folder: Path, artifact: Path) -> InferTask:
    cases = np.random.default_rng(1).standard_normal((3, 3, 16, 16), dtype=np.float32)
    np.savez(folder / "in.npz", input_0=cases)
    return infer_task(artifact, folder, task_id="eval")


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
    assert board.files == [kept]
    assert list(board.cache.glob("host-*/outputs/*")) == []
    assert board.kept == []


def test_outputs_are_taken_once(tmp_path: Path) -> None:
    host, name = BoardHost(tmp_path), f"{'0' * 64}.npz"
    (tmp_path / "outputs" / name).write_bytes(b"outputs")
    assert host.take(name, 3) == b"puts"
    for gone in (name, "../spool.jsonl"):
        with pytest.raises(DamagedFileError, match="does not have"):
            host.take(gone, 0)


def test_an_inference_that_fails_leaves_neither_inputs_nor_outputs(
    onnx_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(task: InferTask, _stop: StopRequested) -> Failure:
        Path(task.outputs_path).write_bytes(b"half")
        return interrupted()

    host = BoardHost(tmp_path)
    monkeypatch.setattr(host, "_create_agent", lambda _spec: SimpleNamespace(infer=fail))
    inputs, model = (tmp_path / "files" / f"{'0' * 64}.{end}" for end in ("npz", "onnx"))
    inputs.write_bytes(b"inputs")
    shutil.copy(onnx_file, model)
    task = infer_task(onnx_file, tmp_path)
    task = replace(task, inputs_path=inputs.name, artifact_path=model.name)
    device = device_there(BoardOptions(ssh="board"))
    assert host.infer(device, task, never_stop).failure == interrupted()
    assert not inputs.exists()
    assert list((tmp_path / "outputs").iterdir()) == []


@pytest.mark.thorough
def test_a_board_is_proven_over_plain_ssh(board: SshBoard, tflite_file: Path) -> None:
    traits = load_kind("board").traits_of(board.options)
    execution = Execution(runtime=Runtime.TFLITE, backend="xnnpack", affinity=(0,))
    task = make_task(tflite_file, Runtime.TFLITE, execution=execution)
    proof = prove(board.agent(), traits, task, 2, "a test", print)
    assert has(proof.outputs, "equal", "every bit")
    assert proof.cores == "0 as asked"
    assert proof.n_pairs == 2
    assert min(*proof.bare_ns, *proof.fleetrank_ns) > 0


def test_the_bare_way_of_a_board_is_its_python_and_the_library_alone(
    board: SshBoard, tflite_file: Path
) -> None:
    task = make_task(tflite_file, Runtime.TFLITE)
    assert len(board.agent().measure_bare(task)) >= QUICK.min_runs
