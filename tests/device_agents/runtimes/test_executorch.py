"""ExecuTorch: true outputs, threads as asked, damaged files refused."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fleetrank.device_agents.contract.runtime import Products
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import MissingLibraryError, UnsupportedError
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.device_agents.runtimes.executorch_runner import (
    ExecutorchRunner,
    _as_agent_error,
    _check_delegates,
)
from fleetrank.device_agents.runtimes.runner import why_unsupported
from fleetrank.device_agents.worker.infer import infer
from fleetrank.foundation.vocabulary import ErrorKind, Mode, Runtime, Status
from tests.device_agents.conftest import infer_task, make_task

XNNPACK = Execution(runtime=Runtime.EXECUTORCH, backend="xnnpack")


def task_with(path: Path, data: bytes) -> MeasureTask:
    path.write_bytes(data)
    return make_task(path, Runtime.EXECUTORCH)


@pytest.mark.filterwarnings("ignore::Warning")
def test_outputs_are_those_of_pytorch(pte_file: Path, tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU()).eval()
    cases = np.random.default_rng(1).standard_normal((3, 3, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "in.npz", input_0=cases)
    task = infer_task(pte_file, tmp_path, task_id="verify", execution=XNNPACK)
    assert infer(task, lambda _: None, None) is None
    with np.load(tmp_path / "out.npz") as stored, torch.inference_mode():
        expected = network(torch.from_numpy(cases)).numpy()
        np.testing.assert_allclose(stored["output_0"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.export
@pytest.mark.filterwarnings("ignore::Warning")  # ExecuTorch's exporter has many of its own
def test_a_product_outside_of_the_delegate_computes_with_floats(
    pte_file: Path, tmp_path: Path
) -> None:
    import torch
    from executorch.exir import to_edge_transform_and_lower

    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(784, 5)
    )
    graph = torch.export.export(network.eval(), (torch.zeros(1, 3, 16, 16),))
    portable = tmp_path / "portable.pte"
    portable.write_bytes(to_edge_transform_and_lower(graph).to_executorch().buffer)
    runner = ExecutorchRunner()
    assert runner.products(str(pte_file), XNNPACK) == Products(of_integers=0, all=1)
    assert runner.products(str(portable), XNNPACK) == Products(of_integers=0, all=2)


@pytest.mark.thorough
@pytest.mark.parametrize("threads", [1, 2])
def test_the_thread_pool_has_the_threads_asked_for(pte_file: Path, threads: int) -> None:
    execution = replace(XNNPACK, threads=threads)
    seen = measure_in_worker(make_task(pte_file, Runtime.EXECUTORCH, execution=execution))
    assert seen.status is Status.OK, seen.failure
    assert dict(seen.worker.settings)["threads"] == threads


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["header", "tables"])
def test_a_changed_byte_is_refused(pte_file: Path, tmp_path: Path, place: str) -> None:
    data = bytearray(pte_file.read_bytes())
    at = 0 if place == "header" else int.from_bytes(data[:4], "little")
    data[at] ^= 0xFF
    failure = measure_in_worker(task_with(tmp_path / "changed.pte", bytes(data))).failure
    assert failure.kind is ErrorKind.BAD_ARTIFACT
    assert failure.remedy


def test_a_program_for_another_delegate_is_refused(pte_file: Path, tmp_path: Path) -> None:
    data = pte_file.read_bytes()
    assert data.count(b"XnnpackBackend\0") == 1
    file = tmp_path / "qnn.pte"
    file.write_bytes(data.replace(b"XnnpackBackend\0", b"QnnBackend\0\0\0\0\0"))
    with pytest.raises(UnsupportedError, match="QnnBackend"):
        _check_delegates(str(file), ["QnnBackend", "XnnpackBackend"])
    _check_delegates(str(pte_file), ["QnnBackend", "XnnpackBackend"])


def test_error_codes_become_kinds() -> None:
    missing = _as_agent_error(RuntimeError("loading method forward failed with error 0x14"))
    assert isinstance(missing, UnsupportedError)
    full = _as_agent_error(RuntimeError("loading method forward failed with error 0x21"))
    assert isinstance(full, MemoryError)


def test_without_the_library_the_extra_is_named(
    pte_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "executorch.extension.pybindings.portable_lib"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingLibraryError) as caught:
        ExecutorchRunner().load(str(pte_file), XNNPACK)
    assert caught.value.remedy == "pip install 'fleetrank[executorch]'"


def test_other_backends_and_modes_are_refused_by_name() -> None:
    assert why_unsupported(XNNPACK) is None
    assert "xnnpack" in (why_unsupported(replace(XNNPACK, backend="cpu")) or "")
    assert "eager" in (why_unsupported(replace(XNNPACK, mode=Mode.COMPILE)) or "")
