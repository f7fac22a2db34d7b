"""Each wall by itself holds a file that runs code, in a real worker of each runtime."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
from confined_worker import MARK
from daily import daily
from hostile_pt2 import rewrite

from fleetrank.device_agents.confinement import landlock, seccomp, walls
from fleetrank.device_agents.confinement.walls import confine, names_of
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.linux.scratch import worker_environment
from fleetrank.device_agents.linux.worker_client import WORKER, infer_in_worker, measure_in_worker
from fleetrank.foundation.codec import from_json
from fleetrank.foundation.supervised_child import run_child
from fleetrank.foundation.vocabulary import ErrorKind, Mode, Runtime, Status
from tests.device_agents.conftest import MakeTask, make_task

ABI = landlock.abi()
HAS_FILTER = seccomp.is_available()
NAMES = names_of(ABI, has_filter=HAS_FILTER, has_audit=True)
needs_landlock = pytest.mark.skipif(
    ABI is None or ABI < 6, reason="this kernel has no Landlock of ABI 6"
)
RECORDED = Path(__file__).parents[2] / "data/pt2/tiny.pt2"
HOSTILE = str(Path(__file__).parents[2] / "makers" / "confined_worker.py")
HARMLESS = {"write to scratch"}
KERNEL_ONLY = {"make a file by libc", "read a secret by libc", "read the parent", "threads outside"}


@dataclass(frozen=True)
class Target:
    """What a hostile file is after: a folder, and a listener on loopback."""

    folder: Path
    listener: socket.socket

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def is_unharmed(self) -> bool:
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            names = sorted(path.name for path in self.folder.iterdir())
            return names == ["secret", "victim"] and (self.folder / "secret").read_text() == "1234"
        return False


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "secret").write_text("1234")
    (folder / "victim").touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Target(folder, listener)


def attack(task: MeasureTask, barriers: str, target: Target) -> tuple[set[str], Measurement]:
    """What succeeded, and the row."""
    command = (sys.executable, "-P", HOSTILE, barriers, str(target.folder), str(target.port))
    with worker_environment(task) as environment:
        end = run_child(command, encode_request(task), timeout_s=120, environment=environment)
    line = next(line for line in end.stderr.splitlines() if line.startswith(MARK))
    found = json.loads(line.removeprefix(MARK))
    return {name for name, is_done in found.items() if is_done}, from_json(Measurement, end.stdout)


def test_the_attempts_are_real_ones(
    task_of: MakeTask, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, the tests below would pass on a file that harms nothing."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a trusted task has no folder of its own
    done, seen = attack(task_of(Runtime.ONNX, is_trusted=True), "", target)
    assert len(done) == 17
    assert not target.is_unharmed()
    assert seen.worker.confinement is None


@needs_landlock
@pytest.mark.parametrize("runtime", daily(Runtime, Runtime.ONNX))
def test_the_kernel_alone_holds_a_file_that_runs_code(
    runtime: Runtime, task_of: MakeTask, target: Target
) -> None:
    done, seen = attack(task_of(runtime), "landlock", target)
    assert done == HARMLESS
    assert target.is_unharmed()
    # Nothing saw that it tried.
    assert seen.status is Status.OK, seen.failure


@pytest.mark.parametrize("runtime", daily(Runtime, Runtime.ONNX))
def test_the_hook_alone_holds_what_goes_through_python(
    runtime: Runtime, task_of: MakeTask, target: Target
) -> None:
    done, seen = attack(task_of(runtime), "audit", target)
    assert done == HARMLESS | KERNEL_ONLY
    (target.folder / "by_libc").unlink()
    assert target.is_unharmed()
    assert_named(seen)


@needs_landlock
@pytest.mark.parametrize("runtime", daily(Runtime, Runtime.ONNX))
def test_all_walls_hold_and_the_row_says_what_the_file_tried(
    runtime: Runtime, task_of: MakeTask, target: Target
) -> None:
    done, seen = attack(task_of(runtime), "landlock+seccomp+audit", target)
    assert done == HARMLESS
    assert target.is_unharmed()
    assert_named(seen)


def test_what_a_runtime_does_when_it_is_imported_is_not_held_against_the_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "loud.py").write_text("import subprocess\nsubprocess.run(['true'], check=True)\n")
    code = """
import contextlib, subprocess, sys
from fleetrank.device_agents.confinement.walls import AuditWall, Walls
from fleetrank.device_agents.confinement.grants import Grants
grants = Grants(installation=(), readable=(), writable=(), scratch="", starts_programs=False)
walls = Walls(None, AuditWall(grants), has_filter=False)
walls.arm("loud")
walls.check()
print("loud" in sys.modules, flush=True)
with contextlib.suppress(PermissionError):
    subprocess.run(["true"])
walls.check()
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr
    assert "BadArtifactError" in done.stderr


def assert_named(seen: Measurement) -> None:
    """The file caught every refusal and went on; its row is a failed one all the same."""
    assert seen.failure.kind is ErrorKind.BAD_ARTIFACT
    assert "the file tried to write" in seen.failure.message
    assert "`trust=true`" in seen.failure.remedy
    assert not seen.failure.is_transient


def pt2_that_runs(code: str, source: Path, target: Path) -> Path:
    """A size is an expression that sympy evaluates; the checks of a `.pt2` refuse it.

    Numbers in it would become sympy's: the code goes in as a string.
    """

    def change(_name: str, data: bytes) -> bytes:
        symbol = b"\"Symbol('s77', positive=True, integer=True)\""
        return data.replace(symbol, json.dumps(f"eval({code!r})").encode())

    return rewrite(source, target, change)


WITHOUT_SCAN = """
import sys
from fleetrank.device_agents.confinement import seccomp
from fleetrank.device_agents.confinement import walls
from fleetrank.device_agents.confinement.walls import AuditWall
from fleetrank.device_agents.runtimes.torch_runner import TorchRunner
from fleetrank.device_agents.worker.__main__ import main
TorchRunner.admit = lambda self, path: path
if sys.argv[1] == "landlock":
    AuditWall.arm = lambda self: None
if sys.argv[1] == "audit":
    walls.abi = lambda: None
seccomp.is_available = lambda: sys.argv[1] == "seccomp"
main()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("payload", ["file", "connection", "program"])
@pytest.mark.parametrize(
    "barriers", [pytest.param("landlock", marks=needs_landlock), "audit", "trusted"]
)
def test_a_pt2_that_runs_code_is_held_with_the_scan_switched_off(
    payload: str, barriers: str, tmp_path: Path, target: Target
) -> None:
    code = {
        "file": f"open({str(target.folder / 'made')!r}, 'w')",
        "connection": f"__import__('socket').create_connection(('127.0.0.1', {target.port}))",
        "program": f"__import__('os').system('touch {target.folder}/by_shell')",
    }[payload]
    file = pt2_that_runs(code, RECORDED, tmp_path / "hostile.pt2")
    command = (sys.executable, "-P", "-c", WITHOUT_SCAN, barriers)
    task = make_task(file, Runtime.TORCH, is_trusted=barriers == "trusted")
    seen = measure_in_worker(task, command=command)
    assert seen.failure is not None
    if barriers == "trusted":  # the file is a hostile one
        assert not target.is_unharmed()
    else:
        assert target.is_unharmed()
        assert seen.failure.kind is ErrorKind.BAD_ARTIFACT
    if barriers == "audit":
        assert "the file tried to" in seen.failure.message


@pytest.mark.parametrize("runtime", daily(Runtime, Runtime.ONNX))
def test_an_ordinary_file_from_outside_fills_every_column_a_trusted_one_does(
    runtime: Runtime, task_of: MakeTask, artifacts: dict[Runtime, Path]
) -> None:
    task = task_of(runtime, primer_path=str(artifacts[runtime]))
    trusted = measure_in_worker(replace(task, is_trusted=True))
    confined = measure_in_worker(task)
    assert confined.status is Status.OK, confined.failure
    assert known(confined) == known(trusted)
    assert (trusted.worker.confinement, confined.worker.confinement) == (None, NAMES)
    assert known(replace(confined.worker, confinement=None)) == known(trusted.worker)
    for seen in (confined, trusted):
        assert seen.run_peak_memory_bytes is not None
    assert known(confined.conditions_before) == known(trusted.conditions_before)


def known(value: object) -> set[str]:
    return {field.name for field in fields(value) if getattr(value, field.name) is not None}  # type: ignore[arg-type]


@pytest.mark.parametrize("runtime", daily(Runtime, Runtime.TFLITE))
def test_verification_reads_its_inputs_and_writes_its_outputs_under_the_walls(
    runtime: Runtime, artifacts: dict[Runtime, Path], tmp_path: Path
) -> None:
    np = pytest.importorskip("numpy")
    np.savez(tmp_path / "in.npz", input_0=np.ones((1, 3, 16, 16), dtype=np.float32))
    measured = make_task(artifacts[runtime], runtime)
    task = InferTask(
        task_id="v",
        artifact_path=measured.artifact_path,
        artifact_sha256=measured.artifact_sha256,
        execution=measured.execution,
        inputs_path=str(tmp_path / "in.npz"),
        outputs_path=str(tmp_path / "out.npz"),
    )
    assert infer_in_worker(task) is None
    with np.load(tmp_path / "out.npz") as stored:
        assert stored.files == ["output_0"]


COMPILED = Execution(runtime=Runtime.TORCH, backend="cpu", mode=Mode.COMPILE)


@pytest.mark.thorough
@needs_landlock
def test_compiling_a_file_from_outside_is_held_by_the_kernel_alone(
    task_of: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's cache lies in the scratch folder: a trusted file must not find it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    seen = measure_in_worker(task_of(Runtime.TORCH, execution=COMPILED, timeout_s=300.0))
    assert seen.status is Status.OK, seen.failure
    assert seen.worker.confinement == names_of(ABI, has_filter=HAS_FILTER, has_audit=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [None, 3])
def test_nothing_is_compiled_where_the_kernel_cannot_hold_it(
    version: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walls, "abi", lambda: version)
    with pytest.raises(UnsupportedError, match="`trust=true`"):
        confine(make_task(RECORDED, Runtime.TORCH, execution=COMPILED), str(tmp_path))


def test_a_trusted_worker_loads_nothing_of_the_walls() -> None:
    script = (
        "import sys; from fleetrank.device_agents.worker import __main__, infer, measure; "
        "print([name for name in sys.modules if 'confinement' in name])"
    )
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.skipif(os.name != "posix", reason="modes of folders are POSIX")
def test_a_worker_started_by_hand_makes_its_own_scratch_folder(
    task_of: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    end = run_child(WORKER, encode_request(task_of(Runtime.ONNX)), timeout_s=60)
    assert from_json(Measurement, end.stdout).status is Status.OK
    (made,) = tmp_path.iterdir()
    assert made.stat().st_mode & 0o777 == 0o700
