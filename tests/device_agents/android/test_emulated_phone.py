"""Real programs of ARM phones under qemu-user: what they compute, print and refuse."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from adb_bench import QUICK, AdbBench, leftovers, make_task
from emulated import emulated_phone, tools
from tiny_onnx import save_rounded, save_tiny_onnx

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_files import file_sha256, read_program
from fleetrank.device_agents.android.execution.program_store import ProgramStore
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.proof import figure_ns
from fleetrank.device_agents.contract.task import Execution, MeasureTask, RepeatLimits
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    MemoryMetric,
    Origin,
    Runtime,
    SampleKind,
    Statistic,
    Status,
)

pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]
Phone = tuple[AdbBench, AndroidAgent]
NETWORK = Path(__file__).parents[3] / "models/networks/primer.onnx"
SAME = 100.0
"""Signal to noise in dB of a relative error of 1e-5."""


@pytest.fixture
def phone(
    adb_server: AdbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Phone]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with emulated_phone(adb_server, tmp_path / "phones") as opened:
        yield opened


def onnx_task(path: Path, backend: str = "cpu", **changes: object) -> MeasureTask:
    execution = Execution(runtime=Runtime.ONNX, backend=backend)
    given = {"execution": execution, "limits": RepeatLimits(timeout_s=120.0), **changes}
    return make_task(artifact_path=str(path), artifact_sha256=file_sha256(path), **given)


def checked_by_this_host(path: Path) -> str:
    """Four inputs, and what this host's ONNX Runtime computes of them."""
    session = pytest.importorskip("onnxruntime").InferenceSession(
        str(path), providers=["CPUExecutionProvider"]
    )
    cases = np.random.default_rng(1).standard_normal((4, 3, 16, 16), dtype=np.float32)
    name = session.get_inputs()[0].name
    outputs = [session.run(None, {name: case[None]})[0] for case in cases]
    made = path.with_suffix(".npz")
    np.savez(made, input_0=cases, output_0=np.concatenate(outputs))
    named = made.with_name(f"{file_sha256(made)}.npz")
    return str(made.rename(named))


def assert_emulated(seen: Measurement, bench: AdbBench) -> None:
    assert seen.status is Status.OK, seen.failure
    assert seen.origin is Origin.EMULATED
    assert leftovers(bench.farmed.folder) == []


@pytest.mark.parametrize(
    ("precision", "backend", "nodes"),
    [("fp32", "cpu", (5, 5)), ("fp32", "xnnpack", (2, 6)), ("int8", "cpu", (6, 6))],
)
def test_ort_runner_computes_what_the_host_computes(
    phone: Phone, tmp_path: Path, precision: str, backend: str, nodes: tuple[int, int]
) -> None:
    bench, agent = phone
    path = tmp_path / "net.onnx"
    if precision == "fp32":
        path.write_bytes(NETWORK.read_bytes())
    else:
        save_rounded(path, "integers")
    seen = agent.measure(onnx_task(path, backend, check_path=checked_by_this_host(path)))
    assert_emulated(seen, bench)
    assert seen.snr_db is None or seen.snr_db > SAME
    assert seen.sample_kind is SampleKind.PER_INFERENCE
    assert len(seen.samples_ns) >= QUICK.min_runs
    assert seen.warmup_runs == QUICK.min_warmup_runs
    assert (seen.backend_nodes, seen.graph_nodes) == nodes
    assert seen.memory_metric is MemoryMetric.VMHWM_GROWTH
    assert 0 < seen.load_peak_memory_bytes <= seen.run_peak_memory_bytes < 2**30
    assert seen.worker.runtime_version == "1.29.0"
    assert seen.raw_log is not None


def test_another_network_is_found_by_its_outputs(phone: Phone, tmp_path: Path) -> None:
    _, agent = phone
    path = save_tiny_onnx(tmp_path / "net.onnx")
    with np.load(checked_by_this_host(path)) as right:
        np.savez(tmp_path / "other.npz", input_0=right["input_0"], output_0=right["output_0"] + 1)
    other = (tmp_path / "other.npz").rename(tmp_path / f"{file_sha256(tmp_path / 'other.npz')}.npz")
    seen = agent.measure(onnx_task(path, check_path=str(other)))
    assert seen.failure is not None
    assert (seen.failure.kind, seen.failure.stage) == (ErrorKind.WRONG_OUTPUT, "verify")


def test_stated_inputs_and_sustained_runs(phone: Phone, tmp_path: Path) -> None:
    bench, agent = phone
    path = save_tiny_onnx(tmp_path / "net.onnx", "rows")
    task = onnx_task(path, policy=replace(QUICK, min_time_s=0.5))
    failure = agent.measure(task).failure
    assert failure is not None
    assert "dynamic sizes" in failure.message
    stated = ModelInput(name="x", shape=(1, 3, 24, 16), values=Values(low=0, high=1))
    seen = agent.measure(replace(task, execution=replace(task.execution, inputs=(stated,))))
    assert_emulated(seen, bench)
    assert seen.sustained_ns is not None
    assert sum(seen.samples_ns) <= seen.sustained_ns
    assert seen.sustained_ns >= 500_000_000


def test_what_ort_runner_cannot_run_is_a_typed_failure(phone: Phone, tmp_path: Path) -> None:
    _, agent = phone
    path = save_tiny_onnx(tmp_path / "net.onnx")
    refused = agent.measure(onnx_task(path, "nnapi")).failure
    assert refused is not None
    assert (refused.kind, "0 of 1 nodes" in refused.message) == (ErrorKind.UNSUPPORTED, True)
    graph = path.read_bytes()
    path.write_bytes(graph.replace(b"Conv", b"Corn"))
    damaged = agent.measure(onnx_task(path)).failure
    assert damaged is not None
    assert damaged.kind in {ErrorKind.BAD_ARTIFACT, ErrorKind.UNSUPPORTED}


def test_ort_runner_without_its_library_says_so(phone: Phone, tmp_path: Path) -> None:
    bench, agent = phone
    alone = read_program("ort_runner", tools()["ort_runner"] / "ort_runner")
    ProgramStore().add(alone)
    options = {"adb": str(bench.phone.server.adb), "serial": bench.farmed.address}
    server = bench.phone.server.address
    agent = AndroidAgent({**options, "adb_server": server, "ort_runner": alone.sha256})
    seen = agent.measure(onnx_task(save_tiny_onnx(tmp_path / "net.onnx")))
    assert seen.failure is not None
    assert "libonnxruntime.so" in seen.failure.message
    assert seen.failure.kind is ErrorKind.UNSUPPORTED


def test_the_real_benchmark_model_is_measured(phone: Phone) -> None:
    bench, agent = phone
    execution = Execution(runtime=Runtime.TFLITE, backend="builtin")
    seen = agent.measure(make_task(execution=execution, limits=RepeatLimits(timeout_s=120.0)))
    assert_emulated(seen, bench)
    assert seen.summary is not None
    assert seen.summary.statistic is Statistic.MEAN
    assert seen.summary.count >= QUICK.min_runs


@pytest.mark.parametrize("runtime", [Runtime.TFLITE, Runtime.ONNX])
def test_a_real_program_is_run_the_bare_way(phone: Phone, tmp_path: Path, runtime: Runtime) -> None:
    _, agent = phone
    task = onnx_task(save_tiny_onnx(tmp_path / "net.onnx"))
    if runtime is Runtime.TFLITE:
        execution = Execution(runtime=runtime, backend="builtin")
        task = make_task(execution=execution, limits=RepeatLimits(timeout_s=120.0))
    bare_ns, seen = agent.measure_bare(task), agent.measure(task)
    assert seen.status is Status.OK, seen.failure
    assert min(bare_ns) > 0
    # Its times say nothing of a phone, but the same program takes about the same time.
    assert 0.1 < median(bare_ns) / figure_ns(seen) < 10
