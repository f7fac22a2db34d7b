"""What every kind of agent promises; a new kind adds one line to OPTIONS."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from adb_bench import open_bench, phone_options, private_server
from daily import daily
from fake_gpu import FakeGpuLibrary
from ssh_board import ssh_board

from fleetrank.device_agents.android.adb_server import find_adb
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.contract.agent import Agent
from fleetrank.device_agents.contract.kind import VirtualMode
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import (
    Execution,
    InferTask,
    MeasurePolicy,
    MeasureTask,
    OptionValue,
)
from fleetrank.device_agents.cuda.agent import CudaAgent
from fleetrank.device_agents.errors import MissingLibraryError, PermanentError
from fleetrank.device_agents.registry import KINDS as ALL_KINDS
from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Runtime, SampleKind, Status
from tests.device_agents.conftest import BACKENDS, MakeTask, infer_task

OPTIONS: Mapping[str, Mapping[str, OptionValue]] = {"cpu": {}, "simulated": {}}
"""Of the kinds that need no device beside this host."""
GPU_WORKER = (sys.executable, str(Path(__file__).parents[1] / "makers/fake_gpu_worker.py"))
KINDS = [
    *daily([*sorted(OPTIONS), "board", "cuda"], *OPTIONS),
    pytest.param("android", marks=pytest.mark.adb),
]
SUSTAINED = [
    *daily([*sorted(OPTIONS), "board", "cuda"], *OPTIONS),
    pytest.param("android", marks=[pytest.mark.adb, pytest.mark.thorough]),
]
"""Each run lasts: of a phone, `android/execution` holds what the tool is asked for."""
# torch compiles with the machine's own compiler and takes half a minute: its own test.
RUNTIMES = list(Runtime)
DAILY = Runtime.TFLITE
"""The one that every kind of the short set but a GPU has; others are tested by their runtime."""


PhoneOptions = Iterator[Mapping[str, OptionValue]]


@pytest.fixture(scope="module")
def phone_of_this_host(tmp_path_factory: pytest.TempPathFactory) -> PhoneOptions:
    """A virtual phone that really runs models; the options of its agent."""
    try:
        adb = find_adb()
    except MissingLibraryError:
        pytest.skip("no adb was found")
    home = tmp_path_factory.mktemp("home")
    with private_server(adb, home) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        with open_bench(server, home / "phones", home, VirtualMode.REAL) as bench:
            yield phone_options(server, bench.farmed.address)


@pytest.fixture(scope="module")
def board_of_this_host() -> Iterator[Mapping[str, OptionValue]]:
    """This machine over ssh; the options of its agent."""
    with (
        tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as runtime,
        pytest.MonkeyPatch.context() as patch,
        ssh_board() as board,
    ):
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        yield {**board.options, "python": sys.executable}


@pytest.fixture(params=KINDS)
def agent(request: pytest.FixtureRequest) -> Agent:
    kind = request.param
    if kind == "cuda":
        # Its worker computes on the processor, behind a driver that is not there.
        return CudaAgent({}, open_library=FakeGpuLibrary, command=GPU_WORKER)
    if kind in OPTIONS:
        return create_agent(kind, OPTIONS[kind])
    options = {"android": "phone_of_this_host", "board": "board_of_this_host"}[kind]
    return create_agent(kind, request.getfixturevalue(options))


def test_every_kind_is_tested() -> None:
    assert {*OPTIONS, "android", "board", "cuda"} == set(ALL_KINDS)


@pytest.mark.parametrize("kind", sorted(ALL_KINDS))
def test_an_unknown_option_is_refused_by_name(kind: str) -> None:
    with pytest.raises(PermanentError, match="colour"):
        create_agent(kind, {"colour": "red"})


def test_probe_says_what_the_device_is(agent: Agent) -> None:
    facts = agent.probe()
    assert facts.device_model
    assert facts.os


@pytest.mark.parametrize("runtime", daily(RUNTIMES, DAILY))
def test_a_measurement_answers_its_task(agent: Agent, runtime: Runtime, task_of: MakeTask) -> None:
    task = task_for(agent, task_of(runtime))
    seen = agent.measure(task)
    if agent.why_unsupported(task.execution) is not None:
        assert (seen.failure.kind, seen.failure.is_transient) == (ErrorKind.UNSUPPORTED, False)
        return
    assert seen.status is Status.OK, seen.failure
    assert seen.task_id == task.task_id
    assert seen.origin is agent.probe().origin
    assert run_count(seen) >= task.policy.min_runs
    assert all(sample > 0 for sample in seen.samples_ns)
    assert seen.load_ns is not None
    assert seen.warmup_runs is not None
    assert (seen.memory_metric is None) == (seen.run_peak_memory_bytes is None)
    if seen.raw_log is None:
        assert_complete(seen, task.policy)
    else:
        # A tool ends by rules of its own, tells no memory or no short first inference, and may
        # count that one as the first of its warm-up runs.
        assert seen.stop_reason is None
        assert seen.warmup_runs + 1 >= task.policy.min_warmup_runs
    assert seen.started_utc is not None
    assert seen.finished_utc is not None
    assert seen.started_utc <= seen.finished_utc
    assert from_json(Measurement, to_json(seen)) == seen


def task_for(agent: Agent, task: MeasureTask) -> MeasureTask:
    """The task with the backend that a GPU has, and little time spent on its energy."""
    if not isinstance(agent, CudaAgent):
        return task
    policy = replace(task.policy, energy_s=0.1)
    return replace(task, execution=replace(task.execution, backend="cuda"), policy=policy)


def assert_complete(seen: Measurement, policy: MeasurePolicy) -> None:
    """All that our own worker knows."""
    assert seen.stop_reason in {"half_width", "max_time", "max_samples"}
    assert seen.first_inference_ns is not None
    assert seen.warmup_runs is not None
    assert seen.warmup_runs >= policy.min_warmup_runs or Flag.UNSTABLE_WARMUP in seen.flags


def run_count(seen: Measurement) -> int:
    """How many runs were timed: those of a summary are counted by the tool."""
    if seen.sample_kind is SampleKind.TOOL_SUMMARY:
        assert seen.samples_ns == ()
        assert seen.summary.latency_ns > 0
        return seen.summary.count or 0
    assert seen.summary is None
    return len(seen.samples_ns)


def test_time_is_up_before_the_least_runs(agent: Agent, task_of: MakeTask) -> None:
    # LiteRT runs on no GPU, and ONNX Runtime on no phone here.
    runtime = Runtime.ONNX if isinstance(agent, CudaAgent) else Runtime.TFLITE
    task = task_for(agent, task_of(runtime))
    policy = replace(task.policy, max_time_s=1e-9, min_runs=100)
    seen = agent.measure(replace(task, policy=policy))
    assert seen.status is Status.OK, seen.failure
    assert run_count(seen) == 1
    assert seen.stop_reason == ("max_time" if seen.raw_log is None else None)
    assert Flag.TOO_FEW in seen.flags


@pytest.mark.parametrize("agent", SUSTAINED, indirect=True)
def test_a_sustained_run_lasts_as_long_as_asked(agent: Agent, task_of: MakeTask) -> None:
    runtime = Runtime.ONNX if isinstance(agent, CudaAgent) else Runtime.TFLITE
    task = task_for(agent, task_of(runtime))
    seen = agent.measure(replace(task, policy=replace(task.policy, min_time_s=0.7)))
    assert seen.status is Status.OK, seen.failure
    assert seen.stop_reason == "min_time"
    if seen.summary is not None:  # a tool that prints no samples prints no wall clock either
        assert (seen.summary.count or 0) * (seen.summary.mean_ns or 0) > 0.5e9
        return
    assert seen.sustained_ns is not None
    assert seen.sustained_ns >= 0.7e9
    assert 0.5 * seen.sustained_ns < sum(seen.samples_ns) <= seen.sustained_ns


def test_a_task_stopped_before_it_starts_is_interrupted(agent: Agent, task_of: MakeTask) -> None:
    runtime = Runtime.TFLITE if isinstance(agent, AndroidAgent) else Runtime.ONNX
    seen = agent.measure(task_for(agent, task_of(runtime)), lambda: True)
    assert seen.status is Status.FAILED
    assert seen.failure.kind is ErrorKind.INTERRUPTED
    assert seen.failure.is_transient


def test_an_execution_of_no_threads_is_unsupported(agent: Agent) -> None:
    backend = "cuda" if isinstance(agent, CudaAgent) else "cpu"
    execution = Execution(runtime=Runtime.ONNX, backend=backend, threads=0)
    if isinstance(agent, AndroidAgent):
        execution = replace(execution, runtime=Runtime.TFLITE, backend="xnnpack")
    assert agent.why_unsupported(execution) is not None
    assert agent.why_unsupported(replace(execution, threads=1)) is None


@pytest.mark.parametrize("runtime", daily(RUNTIMES, Runtime.ONNX))
def test_infer_writes_the_outputs_of_every_case(
    agent: Agent, runtime: Runtime, artifacts: dict[Runtime, Path], tmp_path: Path
) -> None:
    cases = np.random.default_rng(1).standard_normal((3, 3, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "in.npz", input_0=cases)
    task = infer_task(
        artifacts[runtime],
        tmp_path,
        task_id="verify",
        execution=Execution(runtime=runtime, backend=BACKENDS[runtime]),
    )
    assert agent.infer(task) is None
    with np.load(tmp_path / "out.npz") as stored:
        output = stored["output_0"]
    assert output.shape == (3, 4, 16, 16)
    assert not np.allclose(output[0], output[1])


def test_infer_of_a_changed_file_is_a_failure(
    agent: Agent, onnx_file: Path, tmp_path: Path
) -> None:
    task = InferTask(
        task_id="verify",
        artifact_path=str(onnx_file),
        artifact_sha256="0" * 64,
        execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
        inputs_path="none.npz",
        outputs_path=str(tmp_path / "out.npz"),
    )
    failure = agent.infer(task)
    assert failure.kind is ErrorKind.BAD_ARTIFACT
    assert failure.is_transient, "exported again, it may be the right one"
