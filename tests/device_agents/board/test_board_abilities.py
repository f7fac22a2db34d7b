"""A board does what the local processor does: rounds, profiles, language models."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from ssh_board import SshBoard
from tiny_decoder import execution_of, save

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import BlockPolicy, MeasureTask, ReplicaPolicy
from fleetrank.device_agents.registry import KINDS
from fleetrank.foundation.vocabulary import Runtime, Status
from tests.device_agents.conftest import make_task

pytestmark = pytest.mark.slow

BLOCKS = BlockPolicy(block_s=0.02, left_out_runs=2, min_blocks=3, max_blocks=4)


def round_of(path: Path, n: int, **changes: object) -> list[MeasureTask]:
    tasks = [{"task_id": f"task-{number}", "is_trusted": True, **changes} for number in range(n)]
    return [make_task(path, Runtime.ONNX, **task) for task in tasks]


def spans_of(number: int, one: Measurement) -> Iterator[tuple[int, int, int]]:
    first = 0
    for block in one.blocks:
        samples = one.samples_ns[first : first + block.samples]
        first += block.samples
        yield block.start_ns, block.start_ns + sum(samples), number


@pytest.mark.thorough
def test_the_cells_of_a_round_take_turns_there(board: SshBoard, onnx_file: Path) -> None:
    agent = board.agent()
    seen = agent.measure_round(round_of(onnx_file, 3, blocks=BLOCKS))
    assert [one.status for one in seen] == [Status.OK] * 3, [one.failure for one in seen]
    assert [one.task_id for one in seen] == ["task-0", "task-1", "task-2"]
    assert {one.round_id for one in seen} == {"task-0"}
    assert len({len(one.blocks) for one in seen}) == 1
    spans = sorted(span for number, one in enumerate(seen) for span in spans_of(number, one))
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), "one at a time"
    assert board.kept == [], "acknowledged"


@pytest.mark.thorough
@pytest.mark.parametrize("runtime", [Runtime.ONNX, Runtime.TORCH])
def test_the_worker_there_finds_out_where_the_time_goes(
    board: SshBoard, artifacts: dict[Runtime, Path], runtime: Runtime
) -> None:
    task = make_task(artifacts[runtime], runtime, is_profiled=True, is_trusted=True)
    why = KINDS["board"].why_not_profiled
    assert why is not None
    assert why(task.execution) is None
    seen = board.agent().measure(task)
    assert seen.status is Status.OK, seen.failure
    assert (seen.samples_ns, seen.summary) == ((), None), "a profile is no latency"
    found = {(kernel.operator, kernel.module) for kernel in seen.profile.kernels}
    expected = {Runtime.ONNX: {("Conv", None)}, Runtime.TORCH: {("conv2d", "0"), ("relu", "1")}}
    assert found >= expected[runtime], "ONNX Runtime inserts changes of layout"
    assert 0 < sum(kernel.kernel_ns for kernel in seen.profile.kernels) <= seen.profile.run_ns
    assert board.kept == [], "acknowledged"


@pytest.mark.thorough
def test_several_processes_run_there_at_once(board: SshBoard, onnx_file: Path) -> None:
    why = KINDS["board"].why_not_replicated
    task = make_task(onnx_file, Runtime.ONNX, is_trusted=True)
    assert why is not None
    assert why(task.execution) is None
    pair = replace(task.execution, replicas=ReplicaPolicy(count=2, run_s=0.2))
    seen = board.agent().measure(replace(task, execution=pair))
    assert seen.status is Status.OK, seen.failure
    runs = seen.replicas.runs
    assert [run.replica for run in runs] == [1, 2]
    assert max(run.start_ns for run in runs) < min(run.end_ns for run in runs), "at once"
    assert board.kept == [], "acknowledged"


@pytest.mark.thorough
@pytest.mark.parametrize("workload", ["decode@8", "generate@4+3"])
def test_a_language_model_keeps_its_state_there(
    board: SshBoard, tmp_path: Path, workload: str
) -> None:
    path = save(tmp_path, Runtime.ONNX, workload)
    task = make_task(path, Runtime.ONNX, is_trusted=True)
    execution = execution_of(Runtime.ONNX, "cpu", workload)
    seen = board.agent().measure(replace(task, execution=execution))
    assert seen.status is Status.OK, seen.failure
    assert (seen.ttft_samples_ns is None) == workload.startswith("decode")
