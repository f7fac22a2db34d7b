import os
from pathlib import Path

import numpy as np
import pytest

from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.device_agents.host import worker_process
from fleetrank.device_agents.host.worker_process import LIMIT_SHARE, default_limit_bytes
from fleetrank.foundation.vocabulary import ErrorKind, Runtime
from tests.device_agents.conftest import infer_task, make_task

TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def group(root: Path, name: str, limit: str) -> None:
    folder = root / "sys/fs/cgroup" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")


def test_the_default_is_a_share_of_the_memory(tmp_path: Path) -> None:
    assert default_limit_bytes(tmp_path) == int(LIMIT_SHARE * TOTAL)


def test_the_lowest_limit_of_the_groups_counts(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/user/job\n")
    group(tmp_path, "user/job", "max")
    assert default_limit_bytes(tmp_path) == int(LIMIT_SHARE * TOTAL)
    group(tmp_path, "user", "1000000")
    assert default_limit_bytes(tmp_path) == 800_000
    group(tmp_path, "user/job", "500000")
    assert default_limit_bytes(tmp_path) == 400_000


@pytest.mark.slow
def test_a_model_that_eats_all_memory_fails_without_any_limit_in_the_task(
    huge_onnx: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(worker_process, "LIMIT_SHARE", 1024**3 / TOTAL)
    task = make_task(huge_onnx, Runtime.ONNX)
    seen = CpuAgent({}).measure(task)
    assert seen.failure.kind is ErrorKind.OUT_OF_MEMORY
    np.savez(tmp_path / "in.npz", input_0=np.zeros((1,), np.float32))
    verification = infer_task(huge_onnx, tmp_path, execution=task.execution)  # fmt: skip
    failure = CpuAgent({}).infer(verification)
    assert failure.kind is ErrorKind.OUT_OF_MEMORY
