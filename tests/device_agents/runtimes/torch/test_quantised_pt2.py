"""A `.pt2` with the operators of PT2E in a fresh worker, which must know them to load the file."""

from pathlib import Path

import numpy as np
import pytest

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.linux.worker_client import infer_in_worker
from fleetrank.foundation.vocabulary import Runtime
from tests.device_agents.conftest import infer_task

pytestmark = pytest.mark.slow


@pytest.mark.thorough
@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_file_with_quantised_weights_runs_in_a_fresh_worker(
    tmp_path: Path, is_trusted: bool
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.ao.quantization.fx._decomposed")

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weights", torch.arange(-8, 8, dtype=torch.int8).reshape(4, 4))

        def forward(self, x):  # type: ignore[no-untyped-def]
            operators = torch.ops.quantized_decomposed
            return x @ operators.dequantize_per_tensor(self.weights, 0.5, 0, -127, 127, torch.int8)

    path = tmp_path / "q.pt2"
    torch.export.save(torch.export.export(Network(), (torch.zeros(1, 4),)), path)
    np.savez(tmp_path / "in.npz", input_0=np.ones((1, 4), dtype=np.float32))
    task = infer_task(
        path,
        tmp_path,
        task_id="verify",
        execution=Execution(runtime=Runtime.TORCH, backend="cpu"),
        is_trusted=is_trusted,
    )
    assert infer_in_worker(task) is None
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["output_0"].ravel().tolist() == [-4.0, -2.0, 0.0, 2.0]
