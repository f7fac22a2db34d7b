"""Cells of a round take turns; one that fails ends alone."""

import signal
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.protocol import Turn
from fleetrank.device_agents.contract.task import BlockPolicy, MeasurePolicy, MeasureTask
from fleetrank.device_agents.linux import round_client, worker_client
from fleetrank.device_agents.linux.round_client import measure_round
from fleetrank.device_agents.linux.worker_client import WORKER
from fleetrank.foundation.supervised_child import End
from fleetrank.foundation.vocabulary import ErrorKind, Runtime, Status
from tests.device_agents.conftest import make_task

pytestmark = pytest.mark.slow

BLOCKS = BlockPolicy(block_s=0.02, left_out_runs=2, min_blocks=3, max_blocks=4)


def tasks_of(path: Path, n: int, **changes: object) -> list[MeasureTask]:
    return [
        make_task(path, Runtime.ONNX, **{"task_id": f"task-{number}", "blocks": BLOCKS, **changes})
        for number in range(n)
    ]


def stops(measurement: Measurement) -> tuple[Status, ErrorKind | None]:
    failure = measurement.failure
    return measurement.status, None if failure is None else failure.kind


def test_every_cell_has_one_block_in_each_cycle_and_every_second_cycle_is_reversed(
    onnx_file: Path,
) -> None:
    seen = measure_round(tasks_of(onnx_file, 3))
    mine = psutil.Process().children(recursive=True)
    assert [child for child in mine if WORKER[-1] in " ".join(child.cmdline())] == []
    assert [one.task_id for one in seen] == ["task-0", "task-1", "task-2"]
    assert {one.status for one in seen} == {Status.OK}
    assert {one.round_id for one in seen} == {"task-0"}
    counts = {len(one.blocks) for one in seen}
    assert counts <= {3, 4}
    assert len(counts) == 1
    spans = []
    for number, one in enumerate(seen):
        assert sum(block.samples for block in one.blocks) == len(one.samples_ns)
        assert all(len(block.left_out_ns) == 2 for block in one.blocks)
        first = 0
        for block in one.blocks:
            samples = one.samples_ns[first : first + block.samples]
            first += block.samples
            spans.append((block.start_ns, block.start_ns + sum(samples), number))
    spans.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), "two at once"
    order = [number for _, _, number in spans]
    assert order[3:6] == order[:3][::-1]


def dies_in_block(number: int) -> tuple[str, ...]:
    """A worker whose process is killed in its n-th block, only in the task named `dies`."""
    script = f"""
import os, signal, sys
from fleetrank.device_agents.worker import __main__
from fleetrank.device_agents.worker import watch as turns
wait = turns.Turns.wait
count = 0
def dying(self, report):
    global count
    turn = wait(self, report)
    count += 1
    if count == {number} and os.environ.get("DIES"):
        os.kill(os.getpid(), signal.SIGKILL)
    return turn
turns.Turns.wait = dying
decode = __main__.decode_request
def marked(line):
    task = decode(line)
    if getattr(task, "task_id", "") == "dies":
        os.environ["DIES"] = "1"
    return task
__main__.decode_request = marked
sys.exit(__main__.main())
"""
    return (sys.executable, "-P", "-c", script)


def test_a_cell_that_cannot_load_dies_in_a_block_or_hangs_ends_alone(
    onnx_file: Path, looping_onnx: Path, tmp_path: Path
) -> None:
    """A real worker is killed between two turns: the others go on with theirs."""
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    first, last = tasks_of(onnx_file, 2)
    hanging = make_task(looping_onnx, Runtime.ONNX, task_id="hangs", timeout_s=1.5, blocks=BLOCKS)
    bad = make_task(broken, Runtime.ONNX, task_id="bad", blocks=BLOCKS)
    dying = make_task(onnx_file, Runtime.ONNX, task_id="dies", is_trusted=True, blocks=BLOCKS)
    seen = measure_round([hanging, first, bad, dying, last], command=dies_in_block(2))
    assert [stops(one) for one in seen] == [
        (Status.FAILED, ErrorKind.TIMED_OUT),
        (Status.OK, None),
        (Status.FAILED, ErrorKind.BAD_ARTIFACT),
        (Status.FAILED, ErrorKind.CRASHED),
        (Status.OK, None),
    ]
    assert seen[2].failure.stage == "load"
    assert seen[3].failure.exit_code == -signal.SIGKILL
    assert len(seen[1].blocks) >= BLOCKS.min_blocks


@pytest.mark.thorough
def test_a_stop_ends_all_cells_as_interrupted(onnx_file: Path) -> None:
    asked = 0

    def stop_soon() -> bool:
        nonlocal asked
        asked += 1
        return asked > 15

    blocks = BlockPolicy(block_s=5.0, min_blocks=50, max_blocks=50)
    seen = measure_round(tasks_of(onnx_file, 2, blocks=blocks), stop_soon)
    assert {stops(one)[1] for one in seen} == {ErrorKind.INTERRUPTED}


def test_a_round_that_shall_finish_ends_after_the_current_blocks(onnx_file: Path) -> None:
    blocks = replace(BLOCKS, min_blocks=50, max_blocks=50)
    asked = iter([False, True])
    seen = measure_round(
        tasks_of(onnx_file, 2, blocks=blocks), finish_requested=lambda: next(asked)
    )
    assert {(one.status, one.stop_reason, len(one.blocks)) for one in seen} == {
        (Status.OK, "stopped", 2)
    }


def test_the_time_limit_of_the_timed_runs_ends_the_round(onnx_file: Path) -> None:
    (task,) = tasks_of(onnx_file, 1, policy=MeasurePolicy(max_time_s=1.0))
    for timed_ns, reason in ((1.1e9, Turn.MAX_TIME), (0.9e9, None)):
        cell = SimpleNamespace(task=task, timed_ns=timed_ns)
        assert round_client._why_over([cell], BLOCKS, n_cycles=1) is reason


class _Turns:
    """The process of a worker whose turns take 3 s each on its clock."""

    def __init__(self) -> None:
        self.now_ns, self.left_ns = 0, list[int]()
        self.stdout = bytearray()

    def send(self, _line: bytes) -> None: ...

    def wait(self, *, deadline_ns: int, **_: object) -> End:
        self.left_ns.append(deadline_ns - self.now_ns)
        self.now_ns += 3 * 10**9
        self.stdout += worker_client._MARK + b'{"block": null, "samples_ns": []}\n'
        return End.COMPLETE


def test_the_turns_of_a_worker_share_its_time_limit(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = _Turns()
    monkeypatch.setattr(worker_client.time, "perf_counter_ns", lambda: turns.now_ns)
    task = make_task(onnx_file, Runtime.ONNX, blocks=BlockPolicy(), timeout_s=10.0)
    worker = worker_client.Worker(task, lambda: False)
    worker._child = turns
    for turn in ("go", "go", "go"):
        worker.tell(turn)
        worker.hear()
    assert [left / 10**9 for left in turns.left_ns] == [10.0, 7.0, 4.0]
