"""What every kind of agent promises; a new kind adds one line to AGENTS."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from device_agents.agent import Agent
from device_agents.codec import from_json, to_json
from device_agents.errors import PermanentError
from device_agents.registry import AGENTS, create_agent
from device_agents.types import Execution, InferTask, Measurement, OptionValue
from device_agents.vocabulary import ErrorKind, Flag, Runtime, Status
from tests.device_agents.conftest import BACKENDS, MakeTask, sha256

OPTIONS: Mapping[str, Mapping[str, OptionValue]] = {"cpu": {}, "simulated": {}}
# torch compiles with the machine's own compiler and takes half a minute: its own test.
RUNTIMES = list(Runtime)


@pytest.fixture(params=sorted(AGENTS))
def agent(request: pytest.FixtureRequest) -> Agent:
    return create_agent(request.param, OPTIONS[request.param])


@pytest.mark.parametrize("kind", sorted(AGENTS))
def test_an_unknown_option_is_refused_by_name(kind: str) -> None:
    with pytest.raises(PermanentError, match="colour"):
        create_agent(kind, {"colour": "red"})


def test_probe_says_what_the_device_is(agent: Agent) -> None:
    facts = agent.probe()
    assert facts.device_model
    assert facts.os


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_measurement_answers_its_task(agent: Agent, runtime: Runtime, task_of: MakeTask) -> None:
    task = task_of(runtime)
    seen = agent.measure(task)
    assert seen.status is Status.OK, seen.failure
    assert seen.task_id == task.task_id
    assert seen.origin is agent.probe().origin
    assert len(seen.samples_ns) >= task.policy.min_runs
    assert all(sample > 0 for sample in seen.samples_ns)
    assert seen.stop_reason in {"half_width", "max_time", "max_samples"}
    assert seen.load_ns is not None
    assert seen.first_inference_ns is not None
    assert seen.warmup_runs is not None
    assert seen.warmup_runs >= task.policy.min_warmup_runs or Flag.UNSTABLE_WARMUP in seen.flags
    assert seen.memory_metric is not None
    assert seen.run_peak_memory_bytes is not None
    assert seen.started_utc is not None
    assert seen.finished_utc is not None
    assert seen.started_utc <= seen.finished_utc
    assert from_json(Measurement, to_json(seen)) == seen


def test_time_is_up_before_the_least_runs(agent: Agent, task_of: MakeTask) -> None:
    task = task_of(Runtime.ONNX)
    policy = replace(task.policy, max_time_s=1e-9, min_runs=100)
    seen = agent.measure(replace(task, policy=policy))
    assert seen.status is Status.OK, seen.failure
    assert len(seen.samples_ns) == 1
    assert seen.stop_reason == "max_time"
    assert Flag.TOO_FEW in seen.flags


def test_a_task_stopped_before_it_starts_is_interrupted(agent: Agent, task_of: MakeTask) -> None:
    seen = agent.measure(task_of(Runtime.ONNX), lambda: True)
    assert seen.status is Status.FAILED
    assert seen.failure is not None
    assert seen.failure.kind is ErrorKind.INTERRUPTED
    assert seen.failure.is_transient


def test_an_execution_of_no_threads_is_unsupported(agent: Agent) -> None:
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", threads=0)
    assert agent.why_unsupported(execution) is not None
    assert agent.why_unsupported(replace(execution, threads=1)) is None


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_infer_writes_the_outputs_of_every_case(
    agent: Agent, runtime: Runtime, artifacts: dict[Runtime, Path], tmp_path: Path
) -> None:
    cases = np.random.default_rng(1).standard_normal((3, 3, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "in.npz", input_0=cases)
    task = InferTask(
        task_id="verify",
        artifact_path=str(artifacts[runtime]),
        artifact_sha256=sha256(artifacts[runtime]),
        execution=Execution(runtime=runtime, backend=BACKENDS[runtime]),
        inputs_path=str(tmp_path / "in.npz"),
        outputs_path=str(tmp_path / "out.npz"),
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
    assert failure is not None
    assert failure.kind is ErrorKind.BAD_ARTIFACT
    assert not failure.is_transient
