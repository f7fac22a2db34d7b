"""What only a GPU can show; `make test-gpu` runs it and says what it skipped."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.cuda.agent import CudaAgent
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    Flag,
    MemoryMetric,
    Mode,
    Precision,
    Runtime,
    Status,
    Tier,
)
from tests.gpu.conftest import QUICK, Pt2, need_provider, need_triton, sha256, task_of

pytestmark = pytest.mark.gpu

WEIGHTS_BYTES = 4 * (64 * 256 * 128)
"""Of the last layer, which is nearly all of the network."""


def measured(agent: CudaAgent, task: MeasureTask) -> Measurement:
    seen = agent.measure(task)
    assert seen.status is Status.OK, seen.failure
    return seen


def assert_device_time_is_inside(seen: Measurement) -> None:
    assert seen.device_samples_ns is not None
    assert len(seen.device_samples_ns) == len(seen.samples_ns)
    assert min(seen.device_samples_ns) > 0
    assert Flag.CLOCKS_DISAGREE not in seen.flags
    assert seen.input_copy_ns is not None


TELL = """
import json, torch
it = torch.cuda.get_device_properties(0)
print(json.dumps([it.name, it.major, it.minor, it.multi_processor_count]))
"""


def test_facts_name_the_gpu_and_its_driver(agent: CudaAgent, torch) -> None:
    # In a process of its own: this one would stay on the GPU, and be company to all repeats.
    told = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    name, major, minor, sm_count = json.loads(told.stdout)
    facts = agent.probe()
    extra = dict(facts.extra)
    assert facts.tier is Tier.GPU
    assert (facts.device_model, facts.arch) == (name, f"sm_{major}{minor}")
    if extra["is_mig_instance"] is False:
        assert extra["sm_count"] == sm_count
    assert "driver_version" in extra
    print(json.dumps({"device_model": facts.device_model, **extra}, indent=1))


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16, Precision.BF16])
@pytest.mark.parametrize("mode", [Mode.EAGER, Mode.GRAPHS])
def test_torch_measures_with_both_clocks(
    agent: CudaAgent, pt2_of: Pt2, mode: Mode, precision: Precision
) -> None:
    seen = measured(agent, task_of(pt2_of(precision), mode=mode, precision=precision))
    assert_device_time_is_inside(seen)
    assert seen.memory_metric is MemoryMetric.CUDA_ALLOCATED
    assert seen.run_peak_memory_bytes is not None
    assert seen.reserved_memory_bytes is not None
    size = 4 if precision is Precision.FP32 else 2
    assert seen.run_peak_memory_bytes >= WEIGHTS_BYTES * size / 4


def test_torch_compiles(agent: CudaAgent, pt2_of: Pt2) -> None:
    need_triton()
    assert_device_time_is_inside(
        measured(agent, task_of(pt2_of(Precision.FP32), mode=Mode.COMPILE))
    )


@pytest.mark.parametrize("mode", [Mode.EAGER, Mode.GRAPHS])
def test_the_gpu_computes_what_the_processor_does(
    agent: CudaAgent, pt2_of: Pt2, mode: Mode, tmp_path: Path
) -> None:
    path = pt2_of(Precision.FP32)
    cases = np.random.default_rng(1).standard_normal((3, 3, 64, 64), dtype=np.float32)
    np.savez(tmp_path / "in.npz", input_0=cases)
    outputs = []
    for backend, how in (("cpu", Mode.EAGER), ("cuda", mode)):
        task = InferTask(
            task_id="t",
            artifact_path=str(path),
            artifact_sha256=sha256(path),
            execution=replace(task_of(path).execution, backend=backend, mode=how),
            inputs_path=str(tmp_path / "in.npz"),
            outputs_path=str(tmp_path / f"{backend}.npz"),
            is_trusted=True,
        )
        assert agent.infer(task) is None
        with np.load(tmp_path / f"{backend}.npz") as stored:
            outputs.append(stored["output_0"])
    # TF32 would leave errors of 1e-3.
    scale = np.abs(outputs[0]).max()
    np.testing.assert_allclose(outputs[0] / scale, outputs[1] / scale, atol=2e-5)


def test_tf32_is_stated_and_part_of_the_options(agent: CudaAgent, pt2_of: Pt2) -> None:
    for tf32 in (False, True):
        options = (("tf32", True),) if tf32 else ()
        seen = measured(agent, task_of(pt2_of(Precision.FP32), options=options))
        assert seen.worker is not None
        assert dict(seen.worker.settings)["tf32"] is tf32


def test_flushing_the_cache_is_outside_the_samples(agent: CudaAgent, pt2_of: Pt2) -> None:
    path = pt2_of(Precision.FP32)
    warm = measured(agent, task_of(path))
    cold = measured(agent, task_of(path, options=(("flush_l2", True),)))
    assert_device_time_is_inside(cold)
    assert cold.run_peak_memory_bytes == pytest.approx(warm.run_peak_memory_bytes, rel=0.02)
    # Writing 100 MB takes longer than this network does.
    assert np.median(cold.samples_ns) < 5 * np.median(warm.samples_ns)


@pytest.mark.parametrize("options", [(), (("torch_stream", True),)])
@pytest.mark.parametrize("mode", [Mode.EAGER, Mode.GRAPHS])
def test_onnx_runtime_measures_on_the_gpu(
    agent: CudaAgent, onnx_file: Path, mode: Mode, options: tuple[tuple[str, bool], ...]
) -> None:
    need_provider("CUDAExecutionProvider")
    seen = measured(agent, task_of(onnx_file, Runtime.ONNX, mode=mode, options=options))
    assert (seen.device_samples_ns is None) == (not options)
    assert seen.input_copy_ns is not None
    assert seen.worker is not None
    assert dict(seen.worker.settings).get("nodes_on_cpu", 0) == 0
    if seen.memory_metric is None:
        print("the driver does not tell this process's memory, as in some containers")


def test_tensorrt_measures(agent: CudaAgent, onnx_file: Path) -> None:
    need_provider("TensorrtExecutionProvider")
    task = task_of(onnx_file, Runtime.ONNX, backend="tensorrt")
    failure = agent.measure(task).failure
    # Every onnxruntime-gpu has the provider, which finds out only now that TensorRT is missing.
    if failure is not None and "TensorRT libraries" in failure.message:
        pytest.skip("TensorRT is not installed")
    measured(agent, task)


def test_a_missing_provider_is_unsupported(agent: CudaAgent, onnx_file: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this ONNX Runtime has the CUDA provider")
    failure = agent.measure(task_of(onnx_file, Runtime.ONNX)).failure
    assert failure is not None
    assert failure.kind is ErrorKind.UNSUPPORTED
    assert "onnxruntime-gpu" in failure.remedy


def test_energy_is_counted_over_enough_steps(agent: CudaAgent, pt2_of: Pt2) -> None:
    task = task_of(pt2_of(Precision.FP32), mode=Mode.GRAPHS)
    seen = measured(agent, replace(task, policy=replace(QUICK, energy_s=2.0)))
    if seen.energy is None:
        pytest.skip("this GPU counts no energy")
    print(seen.energy)
    assert seen.energy.per_inference_mj is not None, seen.energy
    assert seen.energy.counter_steps >= 20
    assert seen.energy.window_ns >= 2_000_000_000
    assert seen.energy.idle_power_mw is not None
    busy_mw = seen.energy.per_inference_mj * seen.energy.runs / seen.energy.window_ns * 1e9
    assert busy_mw > seen.energy.idle_power_mw


def test_conditions_are_read_under_load(agent: CudaAgent, pt2_of: Pt2) -> None:
    seen = measured(agent, task_of(pt2_of(Precision.FP32)))
    for conditions in (seen.conditions_before, seen.conditions_after):
        assert conditions is not None
        assert conditions.temp_c is not None
        assert conditions.clock_mhz is not None
        print(conditions)
    # Where the driver lists this process, or says that it lists none, it is not its own company.
    assert seen.conditions_after is not None
    assert seen.conditions_after.other_processes in (0, None)
    assert Flag.SHARED_DEVICE not in seen.flags
    print("process memory:", seen.process_memory_bytes)


def test_no_memory_in_the_middle_is_typed_and_the_next_cell_is_unharmed(
    agent: CudaAgent, pt2_of: Pt2, torch, tmp_path: Path
) -> None:
    class TooLarge(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return (x.sum() + torch.ones(1 << 38, dtype=x.dtype, device=x.device)).sum()

    path = tmp_path / "large.pt2"
    exported = torch.export.export(TooLarge(), (torch.zeros(1, 3, 8, 8),))
    torch.export.save(exported, str(path))
    failure = agent.measure(task_of(path)).failure
    assert failure is not None
    assert (failure.kind, failure.is_transient) == (ErrorKind.OUT_OF_MEMORY, False), failure
    measured(agent, task_of(pt2_of(Precision.FP32)))


def test_a_hidden_gpu_is_refused(agent: CudaAgent, pt2_of: Pt2, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    failure = agent.measure(task_of(pt2_of(Precision.FP32))).failure
    assert failure is not None
    assert "CUDA_VISIBLE_DEVICES" in failure.message


@pytest.fixture
def company(agent: CudaAgent, torch) -> Iterator[None]:
    """Another process that has memory on the GPU."""
    script = "import torch, time; x = torch.zeros(1 << 20, device='cuda'); print('up', flush=True)"
    command = [sys.executable, "-c", f"{script}; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)
        yield
        process.kill()


def test_company_on_the_gpu_is_refused_or_flagged(
    agent: CudaAgent, pt2_of: Pt2, company: None
) -> None:
    task = task_of(pt2_of(Precision.FP32))
    failure = agent.measure(task).failure
    if failure is None:
        pytest.skip("the driver lists no processes here, as in some containers")
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    flagged = measured(CudaAgent({"others": "flag"}), task)
    assert Flag.SHARED_DEVICE in flagged.flags


def test_the_worker_runs_alone(agent: CudaAgent, pt2_of: Pt2, tmp_path: Path) -> None:
    """As the worker is started in a shell; its input stays open while it works."""
    command = [sys.executable, "-P", "-m", "fleetrank.device_agents.worker"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(encode_request(task_of(pt2_of(Precision.FP32))) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
    assert answer["status"] == "ok", answer["failure"]


def test_no_setting_of_the_gpu_is_changed_without_being_asked_for(
    agent: CudaAgent, pt2_of: Pt2
) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi, which tells the settings, is not installed")
    query = ["nvidia-smi", "-q", "-d", "CLOCK,POWER,COMPUTE"]

    def settings() -> list[str]:
        told = subprocess.run(query, capture_output=True, text=True, check=False).stdout
        words = ("Limit", "Compute Mode", "Applications", "Max Clocks", "Persistence")
        return [line for line in told.splitlines() if any(word in line for word in words)]

    before = settings()
    measured(agent, task_of(pt2_of(Precision.FP32)))
    assert settings() == before
