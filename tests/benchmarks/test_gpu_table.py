"""The table of a GPU from end to end, on a GPU that is not there, so that the first real one works.

The driver is a fake and the kernels run on the processor; all else is what a GPU machine does.
"""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from fake_gpu import FakeGpuLibrary

from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.cuda.agent import CudaAgent
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.vocabulary import ErrorKind, Status

ROOT = Path(__file__).parents[2]
WORKER = (sys.executable, str(ROOT / "tests/makers/fake_gpu_worker.py"))
LOST = Failure(kind=ErrorKind.DEVICE_LOST, message="lost", remedy="reboot", is_transient=True)


@pytest.fixture
def gpu_table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("gpu_table")

    def agent(options: dict[str, str]) -> CudaAgent:
        return CudaAgent(options, open_library=FakeGpuLibrary, command=WORKER)

    monkeypatch.setattr(module, "CudaAgent", agent)
    return module


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    """As the exporter leaves them, but of one convolution, which takes no time to make."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Conv2d(3, 4, 3).eval()
    images = torch.randn(2, 3, 16, 16)
    for name in ("squeezenet1_1-fp32-b1", "primer"):
        folder = tmp_path / "artifacts" / name
        folder.mkdir(parents=True)
        torch.export.save(torch.export.export(network, (images[:1],)), folder / "model.pt2")
        np.savez(folder / "inputs.npz", input_0=images.numpy())
        np.savez(folder / "reference.npz", output_0=network(images).detach().numpy())
    return tmp_path / "artifacts"


def run(table: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, *more: str) -> int:
    words = (
        "--models squeezenet1_1 --modes eager --precisions fp32 --repeats 1 --jobs 2 "
        f"--max-time-s 0.1 --energy-s 0.2 --artifacts {out.parent}/artifacts --out {out}"
    )
    monkeypatch.setattr(sys, "argv", ["gpu_table.py", *words.split(), *more])
    return int(table.main())


@pytest.mark.thorough
def test_a_run_that_was_cut_off_goes_on_and_measures_nothing_twice(
    gpu_table: ModuleType,
    artifacts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert run(gpu_table, monkeypatch, out, "--budget-s", "0") == gpu_table.UNFINISHED
    assert not (out / "rows.jsonl").exists()
    assert run(gpu_table, monkeypatch, out) == 0
    told = capsys.readouterr().out
    assert "squeezenet1_1/eager/fp32 verified: equal" in told
    (line,) = (out / "rows.jsonl").read_text().splitlines()
    row = from_json(Measurement, line)
    assert row.status is Status.OK, row.failure
    assert row.energy is not None
    assert "| squeezenet1_1 | eager | fp32 | 1 |" in (out / "table.md").read_text()
    # A line that was cut short is no row; a failure that may pass is no result.
    lost = replace(row, status=Status.FAILED, failure=LOST)
    (out / "rows.jsonl").write_text(f"{to_json(lost)}\n{line[:100]}")
    assert run(gpu_table, monkeypatch, out) == 0
    assert run(gpu_table, monkeypatch, out) == 0
    lines = (out / "rows.jsonl").read_text().splitlines()
    assert [from_json(Measurement, it).status for it in lines] == [Status.FAILED, Status.OK]
    assert "device_lost" not in (out / "table.md").read_text()


@pytest.mark.thorough
def test_a_file_that_cannot_be_made_is_told_and_left(
    gpu_table: ModuleType,
    artifacts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    code = run(gpu_table, monkeypatch, out, "--precisions", "int8")
    assert code == gpu_table.UNFINISHED
    assert "cannot be exported in precision 'int8'" in capsys.readouterr().out
