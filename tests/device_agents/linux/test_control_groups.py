"""Limits of control groups: files as the kernel shows them, and a real quota."""

import os
from pathlib import Path

import numpy as np
import pytest
from control_group import cpu_quota

from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.device_agents.linux import control_groups
from fleetrank.device_agents.linux.control_groups import (
    LIMIT_SHARE,
    cpu_quota_cores,
    default_limit_bytes,
    times_throttled,
)
from fleetrank.device_agents.linux.cpu_facts import read_facts
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Runtime
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


STAT = "nr_periods 9\nnr_throttled {}\nthrottled_usec 5\n"
V1 = "4:cpu,cpuacct:/docker/1\n3:memory:/\n"


@pytest.mark.parametrize(
    ("groups", "files", "quota", "throttled"),
    [
        ("0::/job\n", {"job/cpu.max": "max 100000\n", "cpu.max": "99900000 100000\n"}, None, None),
        ("0::/a/job\n", {"a/job/cpu.max": "75000 100000", "a/job/cpu.stat": STAT.format(3),
                         "a/cpu.max": "50000 20000", "a/cpu.stat": STAT.format(4)}, 0.75, 7),
        (V1, {"cpu,cpuacct/docker/1/cpu.cfs_quota_us": "-1\n",
              "cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000\n"}, None, None),
        # A container sees its own group as the root; its name is that of the host.
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/cpu.stat": STAT.format(2),
              "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 0.5, 2),
        ("", {}, None, None),
    ],
)  # fmt: skip
def test_the_smallest_quota_of_the_groups_counts_in_both_versions(
    tmp_path: Path, groups: str, files: dict[str, str], quota: float | None, throttled: int | None
) -> None:
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text
                       for name, text in files.items()}}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota_cores(tmp_path) == quota
    assert times_throttled(tmp_path) == throttled
    assert read_facts(tmp_path).extra == ((("cpu_quota_cores", quota),) if quota else ())


@pytest.mark.slow
def test_a_row_that_a_real_quota_stopped_says_so(onnx_file: Path) -> None:
    task = make_task(onnx_file, Runtime.ONNX)
    assert Flag.CPU_QUOTA not in CpuAgent({}).measure(task).flags
    with cpu_quota(cores=0.2):
        assert cpu_quota_cores() == 0.2
        assert Flag.CPU_QUOTA in CpuAgent({}).measure(task).flags


@pytest.mark.slow
def test_a_model_that_eats_all_memory_fails_without_any_limit_in_the_task(
    huge_onnx: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(control_groups, "LIMIT_SHARE", 1024**3 / TOTAL)
    task = make_task(huge_onnx, Runtime.ONNX)
    seen = CpuAgent({}).measure(task)
    assert seen.failure.kind is ErrorKind.OUT_OF_MEMORY
    np.savez(tmp_path / "in.npz", input_0=np.zeros((1,), np.float32))
    verification = infer_task(huge_onnx, tmp_path, execution=task.execution)  # fmt: skip
    failure = CpuAgent({}).infer(verification)
    assert failure.kind is ErrorKind.OUT_OF_MEMORY
