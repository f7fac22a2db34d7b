import os
import sys
import tempfile
from pathlib import Path

import pytest

from fleetrank.device_agents.linux.scratch import SCRATCH, worker_environment
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.device_agents.linux.worker_process import shed_inheritance
from fleetrank.foundation.vocabulary import Runtime
from tests.device_agents.conftest import MakeTask

pytestmark = pytest.mark.slow

FILL = (
    "import os, signal, sys, tempfile, time; sys.stdin.readline(); "
    "open(os.path.join(tempfile.gettempdir(), 'left'), 'w').close(); "
)


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("script", "timeout_s"),
    [
        ("", 20.0),
        ("sys.exit(3)", 20.0),
        ("os.kill(os.getpid(), signal.SIGKILL)", 20.0),
        ("time.sleep(60)", 1.0),
        ("os.makedirs(os.path.join(tempfile.gettempdir(), 'a', 'b'))", 20.0),
    ],
    ids=["end", "exit", "killed", "time limit", "folders"],
)
def test_the_scratch_folder_goes_however_the_worker_ends(
    script: str, timeout_s: float, task_of: MakeTask, temp: Path
) -> None:
    command = (sys.executable, "-P", "-c", FILL + script)
    measure_in_worker(task_of(Runtime.ONNX, timeout_s=timeout_s), command=command)
    assert list(temp.iterdir()) == []


def test_a_worker_finds_its_scratch_folder_wherever_libraries_look(
    task_of: MakeTask, temp: Path
) -> None:
    with worker_environment(task_of(Runtime.ONNX)) as environment:
        (made,) = temp.iterdir()
        for name in (SCRATCH, "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            assert environment[name] == str(made)
        assert made.stat().st_mode & 0o777 == 0o700
        assert environment["PATH"] == os.environ["PATH"]


def test_a_file_from_outside_learns_no_secret_from_the_environment(
    task_of: MakeTask, temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "RAY_AUTH_TOKEN", "SSH_AUTH_SOCK",
               "FLEETRANK_TOKEN", "TF_TOKEN_app_terraform_io", "https_proxy")  # fmt: skip
    kept = ("MKL_NUM_THREADS", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_VISIBLE_DEVICES")
    for name in (*secrets, *kept):
        monkeypatch.setenv(name, "value")
    for is_trusted, expected in ((False, set(kept)), (True, {*secrets, *kept})):
        task = task_of(Runtime.ONNX, is_trusted=is_trusted, is_profiled=True)
        with worker_environment(task) as environment:
            assert environment is not None
            assert {*secrets, *kept} & set(environment) == expected


def test_a_trusted_task_has_neither_folder_nor_environment(task_of: MakeTask, temp: Path) -> None:
    with worker_environment(task_of(Runtime.ONNX, is_trusted=True)) as environment:
        assert environment is None
        assert list(temp.iterdir()) == []


def test_variables_of_openmp_that_another_process_set_are_dropped_and_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMP_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY"):
        monkeypatch.setenv(name, "1")
    assert shed_inheritance().omp_num_threads == "1"
    assert not [name for name in os.environ if name.startswith(("OMP_", "KMP_", "GOMP_"))]
