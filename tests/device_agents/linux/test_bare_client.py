"""What the bare run on a host answers, and how its failures are told."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import (
    BadOutputError,
    CrashedError,
    TransientError,
    UnsupportedError,
)
from fleetrank.device_agents.linux.bare_client import PROGRAM, measure_bare, samples_of
from fleetrank.foundation.supervised_child import ChildEnd, End
from fleetrank.foundation.vocabulary import Runtime
from tests.device_agents.conftest import QUICK, make_task

ENDED = ChildEnd(end=End.ITSELF, exit_code=0, stdout="", stderr="said", timeout_s=1.0)


def test_the_times_are_the_last_line() -> None:
    assert samples_of(replace(ENDED, stdout="welcome\n[3, 4]\n")) == (3, 4)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"end": End.STOP}, TransientError),
        ({"end": End.TIME_LIMIT}, TransientError),
        ({"end": End.TOO_MUCH_OUTPUT}, TransientError),
        ({"exit_code": 1}, CrashedError),
        ({"stdout": "[3, 4]\nno times\n"}, BadOutputError),
        ({"stdout": "[]\n"}, BadOutputError),
        ({"stdout": "[0]\n"}, BadOutputError),
        ({"stdout": '["3"]\n'}, BadOutputError),
        ({}, BadOutputError),
    ],
)
def test_an_end_without_times_says_why(change, error: type[Exception]) -> None:
    with pytest.raises(error):
        samples_of(replace(ENDED, **change))


def test_it_imports_nothing_of_ours() -> None:
    assert "fleetrank." not in PROGRAM.read_text()


def test_only_a_tflite_file_has_a_bare_way(tflite_file: Path) -> None:
    task = make_task(tflite_file, Runtime.TFLITE)
    for execution in (
        Execution(runtime=Runtime.ONNX, backend="cpu"),
        replace(task.execution, backend="builtin"),
    ):
        with pytest.raises(UnsupportedError, match="no bare way"):
            measure_bare(replace(task, execution=execution))


@pytest.mark.slow
def test_a_real_run_keeps_its_inputs_and_outputs(tflite_file: Path, tmp_path: Path) -> None:
    task = make_task(tflite_file, Runtime.TFLITE)
    assert len(measure_bare(task, kept=tmp_path / "kept.npz")) >= QUICK.min_runs
    with np.load(tmp_path / "kept.npz") as kept:
        assert kept["input_0"].shape == (1, 3, 16, 16)
        assert kept["output_0"].any()
    with pytest.raises(CrashedError, match="IndexError"):
        measure_bare(replace(task, artifact_path=str(tmp_path / "none.tflite")))
