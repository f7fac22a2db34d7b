"""The agent on a GPU that is not there: NVML is a fake, the worker computes on the processor."""

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_gpu import A100, H100, FakeGpuLibrary

from fleetrank.device_agents.contract.gpu_backends import GPU_RUNTIMES, why_unsupported_on_gpu
from fleetrank.device_agents.contract.task import (
    Execution,
    MeasureTask,
    RepeatLimits,
    ReplicaPolicy,
)
from fleetrank.device_agents.cuda import gpu_watch, nvml
from fleetrank.device_agents.cuda.agent import CudaAgent
from fleetrank.device_agents.cuda.nvml_library import Found, GpuProcess
from fleetrank.device_agents.errors import PermanentError, UnfitConditionsError, UnusableDeviceError
from fleetrank.foundation.vocabulary import (
    EnergyMethod,
    ErrorKind,
    Flag,
    MemoryMetric,
    Mode,
    Precision,
    Runtime,
    Status,
)
from tests.device_agents.conftest import infer_task, make_task

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[2] / "data/pt2/tiny.pt2"
WORKER = (sys.executable, str(Path(__file__).parents[2] / "makers/fake_gpu_worker.py"))


def agent_on(library: FakeGpuLibrary | None = None, **options: object) -> CudaAgent:
    found = library or FakeGpuLibrary()
    return CudaAgent(options, open_library=lambda: found, command=WORKER)  # type: ignore[arg-type]


def gpu_task(path: Path, runtime: Runtime, **changes: object) -> MeasureTask:
    execution = Execution(runtime=runtime, backend="cuda", **changes)  # type: ignore[arg-type]
    task = make_task(path, runtime, execution=execution)
    return replace(task, is_trusted=True, policy=replace(task.policy, energy_s=0.2))


@pytest.mark.thorough
def test_a_repeat_states_times_memory_energy_conditions_and_clocks_of_the_gpu() -> None:
    """One worker with PyTorch: its start takes longer than all that it measures."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    library = FakeGpuLibrary()
    task = gpu_task(RECORDED, Runtime.TORCH, batch=2)
    seen = agent_on(library, lock_clocks_mhz=1410).measure(task)
    assert seen.status is Status.OK, seen.failure
    assert seen.device_samples_ns is not None
    assert len(seen.device_samples_ns) == len(seen.samples_ns)
    pairs = zip(seen.samples_ns, seen.device_samples_ns, strict=True)
    assert all(0 < device <= wall for wall, device in pairs)
    assert Flag.CLOCKS_DISAGREE not in seen.flags

    assert seen.memory_metric is MemoryMetric.CUDA_ALLOCATED, "what the allocator grew by"
    assert (seen.baseline_memory_bytes, seen.run_peak_memory_bytes) == (1000, 4000)
    assert seen.reserved_memory_bytes == 7000

    energy = seen.energy
    assert energy.method is EnergyMethod.NVML_COUNTER
    assert energy.per_inference_mj is not None
    assert energy.per_inference_mj > 0
    assert energy.idle_power_mw is not None
    assert energy.counter_steps >= 20
    assert energy.window_ns >= 200_000_000

    assert seen.conditions_after.clock_mhz == 1755.0
    assert seen.conditions_after.throttle_reasons == "none"
    assert seen.input_copy_ns is not None
    settings = dict(seen.worker.settings)
    assert (settings["tf32"], settings["flush_l2"], settings["cudnn"]) == (False, False, 91002)

    assert library.calls == ["lock 1410", "unlock"]
    assert settings["clock_lock"] == "locked at 1410 MHz"


@pytest.mark.thorough
def test_a_replayed_graph_computes_what_eager_does(pt2_file: Path, tmp_path: Path) -> None:
    cases = np.random.default_rng(1).standard_normal((2, 3, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "in.npz", input_0=cases)
    outputs = []
    for name in (Mode.EAGER, Mode.GRAPHS):
        path = tmp_path / f"{name}.npz"
        task = infer_task(
            pt2_file,
            tmp_path,
            task_id="t",
            execution=Execution(runtime=Runtime.TORCH, backend="cuda", mode=name),
            outputs_path=str(path),
            is_trusted=True,
        )
        assert agent_on().infer(task) is None
        with np.load(path) as stored:
            outputs.append(stored["output_0"])
    # The stand-in's graph is replayed too, on the memory of the first inputs.
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-6)
    assert not np.allclose(outputs[1][0], outputs[1][1])


def test_onnx_runtime_has_no_device_time_without_a_stream(onnx_file: Path) -> None:
    seen = agent_on().measure(gpu_task(onnx_file, Runtime.ONNX))
    assert seen.status is Status.OK, seen.failure
    assert seen.device_samples_ns is None
    assert seen.input_copy_ns is not None
    settings = dict(seen.worker.settings)
    assert settings["nodes_on_cpu"] == 1
    assert "clock_lock" not in settings
    # The fake driver lists no process, so nobody knows what this one holds.
    assert seen.process_memory_bytes is None
    assert seen.memory_metric is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "kind", "is_transient"),
    [
        ("lost", ErrorKind.DEVICE_LOST, True),
        ("full", ErrorKind.OUT_OF_MEMORY, False),
        ("old_driver", ErrorKind.UNSUPPORTED, False),
    ],
)
def test_faults_of_the_gpu_are_typed(
    fault: str, kind: ErrorKind, is_transient: bool, pt2_file: Path, monkeypatch
) -> None:
    monkeypatch.setenv("CUDA_FAKE_FAULT", fault)
    failure = agent_on().measure(gpu_task(pt2_file, Runtime.TORCH)).failure
    assert (failure.kind, failure.is_transient) == (kind, is_transient), failure


def test_a_worker_that_dies_on_a_lost_gpu_did_not_crash_by_itself(onnx_file: Path) -> None:
    library = FakeGpuLibrary()

    ends = (sys.executable, "-c", "exit(9)")
    agent = CudaAgent({}, open_library=lambda: library, command=ends)
    crashed = agent.measure(gpu_task(onnx_file, Runtime.ONNX)).failure
    assert crashed.kind is ErrorKind.CRASHED

    def find_once() -> FakeGpuLibrary:
        lost = FakeGpuLibrary(is_lost=bool(calls))
        calls.append(1)
        return lost

    calls: list[int] = []
    agent = CudaAgent({}, open_library=find_once, command=ends)
    lost = agent.measure(gpu_task(onnx_file, Runtime.ONNX)).failure
    assert (lost.kind, lost.is_transient) == (ErrorKind.DEVICE_LOST, True)


@pytest.mark.parametrize(("limit", "exit_code"), [(None, 7), (2**30, 8)])
def test_host_memory_is_limited_only_where_the_sweep_says_so(
    limit: int | None, exit_code: int, onnx_file: Path
) -> None:
    tells = "exit(7 if '\"memory_limit_bytes\":null' in input() else 8)"
    agent = CudaAgent({}, open_library=FakeGpuLibrary, command=(sys.executable, "-c", tells))
    task = replace(gpu_task(onnx_file, Runtime.ONNX), limits=RepeatLimits(memory_limit_bytes=limit))
    failure = agent.measure(task).failure
    assert failure.exit_code == exit_code


def test_a_gpu_that_is_gone_before_the_repeat_is_transient(onnx_file: Path) -> None:
    agent = agent_on(FakeGpuLibrary(is_lost=True))
    failure = agent.measure(gpu_task(onnx_file, Runtime.ONNX)).failure
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)


def test_probe_names_the_gpu_and_several_need_a_name(monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    both = FakeGpuLibrary(found=Found(gpus=(H100, A100)))
    with pytest.raises(PermanentError, match="2 GPUs"):
        agent_on(both).probe()
    assert agent_on(both, uuid=A100.uuid).probe().device_model == A100.name
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UnusableDeviceError, match="hides"):
        agent_on(both, uuid=A100.uuid).probe()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_wrong_word_for_others_is_refused() -> None:
    with pytest.raises(PermanentError, match="refuse or flag"):
        agent_on(others="ignore")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runtime": Runtime.TFLITE}, "tflite does not run on NVIDIA GPUs here; onnx, torch do"),
        ({"backend": "tensorrt"}, "torch has no backend 'tensorrt' on a GPU; it has cuda"),
        ({"precision": Precision.INT8}, "no precision 'int8'"),
        ({"runtime": Runtime.ONNX, "precision": Precision.BF16}, "no precision 'bf16'"),
        ({"runtime": Runtime.ONNX, "mode": Mode.COMPILE}, "no mode 'compile'"),
        ({"options": (("spinning", True),)}, "no option 'spinning'"),
        ({"threads": 0}, "at least 1"),
    ],
)
def test_what_no_gpu_can_do_is_refused_by_name(changes: dict[str, object], words: str) -> None:
    execution = Execution(**{"runtime": Runtime.TORCH, "backend": "cuda", **changes})  # type: ignore[arg-type]
    assert words in str(why_unsupported_on_gpu(execution))


def test_every_combination_of_a_gpu_is_supported() -> None:
    for runtime, known in GPU_RUNTIMES.items():
        for backend in known.backends:
            for mode in known.modes:
                execution = Execution(runtime=runtime, backend=backend, mode=mode)
                assert why_unsupported_on_gpu(execution) is None


def test_a_process_that_is_just_ending_is_waited_for(onnx_file: Path, monkeypatch) -> None:
    class Ending(FakeGpuLibrary):
        looks = 0

        def processes(self, gpu: object) -> tuple[GpuProcess, ...]:
            self.looks += 1
            return (GpuProcess(pid=1, name="the last repeat"),) if self.looks < 3 else ()

    monkeypatch.setattr(nvml, "open_nvml", Ending)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", H100.uuid)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert gpu_watch.open_gpu_watch(gpu_task(onnx_file, Runtime.ONNX)).before == ()


@pytest.mark.parametrize("others", ["refuse", "flag"])
def test_company_on_the_gpu_refuses_or_flags_the_repeat(
    others: str, onnx_file: Path, monkeypatch, tmp_path: Path
) -> None:
    company = FakeGpuLibrary(running=(GpuProcess(pid=1, name="trainer"),))
    monkeypatch.setattr(nvml, "open_nvml", lambda: company)
    monkeypatch.setattr(gpu_watch, "GRACE_S", 0.2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", H100.uuid)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    task = replace(gpu_task(onnx_file, Runtime.ONNX), allows_shared_gpu=others == "flag")
    if others == "refuse":
        with pytest.raises(UnfitConditionsError, match="trainer"):
            gpu_watch.open_gpu_watch(task)
        return
    seen = gpu_watch.open_gpu_watch(task).conditions(None)
    assert seen.other_processes == 1
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"  # fp32 means fp32 unless tf32 is asked for


@pytest.mark.thorough
def test_a_set_of_processes_on_one_gpu_is_no_foreign_company(pt2_file: Path) -> None:
    task = gpu_task(pt2_file, Runtime.TORCH)
    both = replace(task.execution, replicas=ReplicaPolicy(count=2, run_s=3.0))
    together = replace(task, execution=both)
    seen = agent_on().measure(together)
    assert seen.status is Status.OK, seen.failure
    assert len(seen.replicas.runs) == 2
    assert seen.replicas.core_use is None
    assert Flag.SHARED_DEVICE not in seen.flags
    assert seen.memory_metric is MemoryMetric.CUDA_ALLOCATED
    energy = seen.replicas.energy
    assert energy.method is EnergyMethod.NVML_COUNTER
