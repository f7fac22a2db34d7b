"""The bytes that were hashed are the bytes that were loaded, and inputs are not empty."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fleetrank.device_agents.errors import LostArtifactError
from fleetrank.device_agents.worker.artifact_checks import check_artifact, check_unchanged
from fleetrank.device_agents.worker.infer import infer
from fleetrank.foundation.vocabulary import ErrorKind
from tests.device_agents.conftest import infer_task, sha256


def write_in_place(file: Path) -> None:
    """The same size, and the time of the last change set back."""
    before = file.stat()
    file.write_bytes(b"else")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    other.replace(file)


@pytest.mark.parametrize("change", [write_in_place, replace, Path.unlink])
def test_a_file_that_changes_between_check_and_load_is_lost(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"this")
    # As if it had been made long ago: times of change have the steps of the system's clock.
    os.utime(file, ns=(1, 1))
    state = check_artifact(str(file), sha256(file))
    check_unchanged(str(file), state)
    change(file)
    with pytest.raises(LostArtifactError, match="changed while it was loaded"):
        check_unchanged(str(file), state)


@pytest.mark.parametrize("content", [b"else", None])
def test_a_file_of_another_checksum_is_lost(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"this")
    wanted = sha256(file)
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(LostArtifactError):
        check_artifact(str(file), wanted)


def test_reading_a_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"this")
    state = check_artifact(str(file), sha256(file))
    file.read_bytes()
    check_unchanged(str(file), state)


EMPTY = {
    "no bytes": None, "no arrays": {}, "no cases": {"input_0": np.zeros((0, 3, 16, 16))},
    "no axis of cases": {"input_0": np.float32(1)}, "no targets": {"targets": np.zeros((0, 1))},
    "no inferences": {"input_0": np.zeros((0, 1)), "input_1": np.ones(2), "every_1": np.array(1)},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_file_of_inputs_is_named_with_a_remedy(
    onnx_file: Path, tmp_path: Path, kind: str
) -> None:
    with (tmp_path / "in.npz").open("wb") as file:
        if EMPTY[kind] is not None:
            np.savez(file, **EMPTY[kind])
    failure = infer(infer_task(onnx_file, tmp_path, is_trusted=True), lambda _stage: None, None)
    assert failure.kind is ErrorKind.BAD_ARTIFACT
    assert "file of inputs" in failure.message
    assert "data that is not empty" in failure.remedy
