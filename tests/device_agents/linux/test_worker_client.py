"""Every way a worker can end badly becomes a typed failure, and the next task is unharmed."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from daily import daily
from waiting import is_soon_gone, wait_until

from fleetrank.device_agents.contract.agent import never_stop
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.device_agents.contract.task import Execution, RepeatLimits
from fleetrank.device_agents.linux import worker_client
from fleetrank.device_agents.linux.worker_client import (
    WORKER,
    Worker,
    infer_in_worker,
    measure_in_worker,
)
from fleetrank.foundation import supervised_child
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.vocabulary import ErrorKind, Origin, Runtime, Status
from tests.device_agents.conftest import MakeTask, infer_task, make_task

pytestmark = pytest.mark.slow

READ_REQUEST = "import os, signal, sys, time; sys.stdin.readline(); "


@pytest.fixture
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the folder of a worker that no parent removes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def fail_with(script: str, task_of: MakeTask, timeout_s: float = 20.0) -> Failure:
    command = (sys.executable, "-P", "-c", READ_REQUEST + script)
    seen = measure_in_worker(task_of(Runtime.ONNX, timeout_s=timeout_s), command=command)
    assert seen.status is Status.FAILED
    assert seen.samples_ns == ()
    assert seen.started_utc is not None
    assert seen.failure is not None
    return seen.failure


@pytest.mark.parametrize(
    ("script", "kind", "is_transient", "exit_code"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", ErrorKind.CRASHED, False, -signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", ErrorKind.CRASHED, True, -signal.SIGKILL),
        ("sys.exit(3)", ErrorKind.CRASHED, False, 3),
        ("", ErrorKind.BAD_OUTPUT, False, 0),
        ("print('hello')", ErrorKind.BAD_OUTPUT, False, 0),
        ("print('{}')", ErrorKind.BAD_OUTPUT, False, 0),
        ("sys.stdout.buffer.write(bytes(range(256)))", ErrorKind.BAD_OUTPUT, False, 0),
        ("sys.exit('std::bad_alloc')", ErrorKind.OUT_OF_MEMORY, False, 1),
    ],
)
def test_each_end_of_a_worker_has_its_kind(
    script: str, kind: ErrorKind, is_transient: bool, exit_code: int, task_of: MakeTask
) -> None:
    failure = fail_with(script, task_of)
    assert (failure.kind, failure.is_transient) == (kind, is_transient)
    assert failure.exit_code == exit_code
    assert failure.remedy


def test_a_crash_names_its_stage_and_the_last_words(task_of: MakeTask) -> None:
    words = "os.write(2, b'fleetrank-stage: load\\nbad things\\n')"
    script = f"{words}; os.kill(os.getpid(), signal.SIGSEGV)"
    failure = fail_with(script, task_of)
    assert failure.stage == "load"
    assert "SIGSEGV" in failure.message
    assert "bad things" in failure.message
    assert "fleetrank-stage" not in failure.message


def test_a_worker_that_prints_without_end_is_ended(task_of: MakeTask) -> None:
    failure = fail_with("[sys.stdout.write('x' * 65536) for _ in iter(int, 1)]", task_of)
    assert failure.kind is ErrorKind.BAD_OUTPUT


def test_an_answer_to_another_task_is_no_answer(task_of: MakeTask) -> None:
    good = Measurement(task_id="other", status=Status.OK, origin=Origin.MEASURED, samples_ns=(1,))
    failure = fail_with(f"print({to_json(good)!r})", task_of)
    assert failure.kind is ErrorKind.BAD_OUTPUT
    assert "other" in failure.message


def test_a_grandchild_that_keeps_the_pipes_open_does_not_hold_the_agent(task_of: MakeTask) -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, file=sys.stderr)"
    start = time.perf_counter()
    failure = fail_with(script, task_of)
    assert time.perf_counter() - start < 15
    sleeper = int(failure.message.rsplit(maxsplit=1)[-1])
    assert is_soon_gone(sleeper)


def test_a_missing_interpreter_is_a_failure_not_an_exception(task_of: MakeTask) -> None:
    seen = measure_in_worker(task_of(Runtime.ONNX), command=("/nowhere/python",))
    assert seen.failure.is_transient


def test_a_model_that_never_returns_times_out(
    looping_onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(make_task(looping_onnx, Runtime.ONNX, timeout_s=3600.0), never_stop)

    def an_hour_later_once_it_runs_ns() -> int:
        runs = b"first_inference" in worker._child.stderr
        return time.perf_counter_ns() + runs * 3600 * NS_PER_S

    clock = SimpleNamespace(perf_counter_ns=an_hour_later_once_it_runs_ns, sleep=time.sleep)
    monkeypatch.setattr(supervised_child, "time", clock)
    with ExitStack() as stack:
        worker.start(stack, WORKER)
    failure = worker.measurement.failure
    assert failure.kind is ErrorKind.TIMED_OUT
    assert failure.stage == "first_inference"
    assert not failure.is_transient


def test_a_stop_is_heard_while_a_model_runs(looping_onnx: Path) -> None:
    def runs() -> bool:
        child = getattr(worker, "_child", None)
        return child is not None and b"first_inference" in child.stderr

    worker = Worker(make_task(looping_onnx, Runtime.ONNX), runs)
    with ExitStack() as stack:
        worker.start(stack, WORKER)
    assert worker.measurement.failure.kind is ErrorKind.INTERRUPTED


def test_a_model_beyond_the_memory_limit_is_out_of_memory(huge_onnx: Path) -> None:
    task = make_task(huge_onnx, Runtime.ONNX, limits=RepeatLimits(memory_limit_bytes=1024**3))
    seen = measure_in_worker(task)
    assert seen.failure.kind is ErrorKind.OUT_OF_MEMORY, seen.failure
    assert not seen.failure.is_transient


def test_a_worker_without_memory_to_start_is_out_of_memory(task_of: MakeTask) -> None:
    seen = measure_in_worker(
        task_of(Runtime.ONNX, limits=RepeatLimits(memory_limit_bytes=8 * 1024**2))
    )
    assert seen.failure.kind is ErrorKind.OUT_OF_MEMORY, seen.failure


def test_a_kill_for_lack_of_memory_is_told_from_another(
    task_of: MakeTask, onnx_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([0, 1, 1, 2])
    monkeypatch.setattr(worker_client, "read_oom_kills", lambda: next(counts))
    killed = "os.kill(os.getpid(), signal.SIGKILL)"
    command = (sys.executable, "-P", "-c", READ_REQUEST + killed)
    failures = (
        fail_with(killed, task_of),
        infer_in_worker(infer_task(onnx_file, tmp_path), command=command),
    )
    for failure in failures:
        assert (failure.kind, failure.is_transient) == (ErrorKind.OUT_OF_MEMORY, True)


def test_unusable_cpus_are_a_failure(task_of: MakeTask) -> None:
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", affinity=(4095,))
    seen = measure_in_worker(task_of(Runtime.ONNX, execution=execution))
    assert seen.failure.stage == "start"


def test_a_folder_with_packages_of_the_same_names_shadows_nothing_and_gets_no_files(
    task_of: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime would keep and send telemetry."""
    for package in ("fleetrank", "models", "onnxruntime"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "numpy.py").write_text("raise SystemExit('shadowed')")
    before = set(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    seen = measure_in_worker(replace(task_of(Runtime.ONNX), is_trusted=True))
    assert seen.status is Status.OK, seen.failure
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("runtime", daily([Runtime.ONNX, Runtime.TORCH], Runtime.ONNX))
def test_the_worker_needs_numpy_and_the_runtime_alone(task_of: MakeTask, runtime: Runtime) -> None:
    script = """
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {'pydantic', 'ray', 'polars', 'scipy', 'psutil', 'typer',
                                      'rich', 'pyarrow', 'orjson', 'yaml', 'duckdb', 'pynvml',
                                      'adbutils'} or name in {'fleetrank.models',
                                      'fleetrank.orchestrator', 'fleetrank.analysis'}:
            raise ModuleNotFoundError(f'{name} is not on a device')
sys.meta_path.insert(0, Forbid())
from fleetrank.device_agents.worker.__main__ import main
main()
"""
    seen = measure_in_worker(task_of(runtime), command=(sys.executable, "-P", "-c", script))
    assert seen.status is Status.OK, seen.failure


@pytest.mark.thorough
@pytest.mark.usefixtures("own_temp")
def test_a_person_gives_the_worker_a_file(task_of: MakeTask, tmp_path: Path) -> None:
    request = tmp_path / "task.json"
    request.write_text(encode_request(task_of(Runtime.ONNX)) + "\n")
    with request.open() as file:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "fleetrank.device_agents.worker"],
            stdin=file, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert from_json(Measurement, done.stdout).status is Status.OK


@pytest.mark.thorough
def test_chatter_of_a_library_after_a_crash_does_not_mix_into_the_result(
    task_of: MakeTask,
) -> None:
    fail_with("os.kill(os.getpid(), signal.SIGSEGV)", task_of)
    script = """
import os, sys
import fleetrank.device_agents.runtimes.onnx_runner as runner
version = runner.OnnxRunner.version
def chatty(self):
    print('import this'); os.write(1, b'{"not": "the result"}\\n')
    return version(self)
runner.OnnxRunner.version = chatty
from fleetrank.device_agents.worker.__main__ import main
main()
"""
    seen = measure_in_worker(task_of(Runtime.ONNX), command=(sys.executable, "-P", "-c", script))
    assert seen.status is Status.OK, seen.failure


def test_a_worker_runs_where_it_is_pinned_and_a_primer_takes_the_runtime_out_of_its_memory(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # as a Ray worker hands it down
    cpu = max(os.sched_getaffinity(0))
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", affinity=(cpu,))
    task = make_task(onnx_file, Runtime.ONNX, execution=execution)
    seen = measure_in_worker(task)
    assert seen.worker.affinity == (cpu,)
    assert seen.worker.omp_num_threads == "7"
    bare = seen.load_peak_memory_bytes
    primed = measure_in_worker(replace(task, primer_path=str(onnx_file))).load_peak_memory_bytes
    assert bare is not None
    assert primed is not None
    assert primed < bare / 2


@pytest.mark.usefixtures("own_temp")
def test_a_killed_parent_leaves_no_worker(looping_onnx: Path) -> None:
    script = (
        "import sys; from fleetrank.foundation.codec import from_json; "
        "from fleetrank.device_agents.linux.worker_client import measure_in_worker; "
        "from fleetrank.device_agents.contract.task import MeasureTask; "
        "measure_in_worker(from_json(MeasureTask, sys.argv[1]))"
    )
    request = to_json(make_task(looping_onnx, Runtime.ONNX))
    parent = subprocess.Popen([sys.executable, "-P", "-c", script, request])
    try:
        reaper = wait_for_child(parent.pid)
        worker = psutil.Process(wait_for_child(reaper))
        # To load the runtime takes half of that; the rest is the endless model.
        wait_until(lambda: worker.cpu_times().user > 1.0, "a worker inside the model", 60.0)
    finally:
        parent.kill()
        parent.wait()
    assert is_soon_gone(worker.pid)


@pytest.mark.usefixtures("own_temp")
def test_a_worker_ends_when_its_input_does(looping_onnx: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "fleetrank.device_agents.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    worker.communicate(
        f"{encode_request(make_task(looping_onnx, Runtime.ONNX))}\n".encode(), timeout=20
    )
    assert worker.returncode == 1


def wait_for_child(pid: int) -> int:
    deadline = time.perf_counter() + 20
    while time.perf_counter() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.05)
    raise AssertionError("the parent started no worker")
