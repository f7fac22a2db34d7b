"""What a board does beside the measurement: one host at a time, and no result is lost."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from waiting import wait_until

from fleetrank.device_agents.board.there import keeper
from fleetrank.device_agents.board.there.board_store import BoardStore
from fleetrank.device_agents.board.there.keeper import BoardWork, measure
from fleetrank.device_agents.board.there.line import FINISH, Line
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.device_agents.contract.task import BlockPolicy, MeasureTask
from fleetrank.foundation.vocabulary import Origin, Status
from tests.device_agents.conftest import plain_task

BLOCKS = BlockPolicy(block_s=0.02, left_out_runs=2, min_blocks=3, max_blocks=4)


class Counting:
    """An agent that measures nothing, and keeps what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wants_finish = False

    def measure(self, task: MeasureTask, _stop: Callable[[], bool]) -> Measurement:
        self.asked.append(task.task_id)
        return Measurement(
            task_id=task.task_id, status=Status.OK, origin=Origin.MEASURED, samples_ns=(1,)
        )

    def measure_round(
        self,
        tasks: Sequence[MeasureTask],
        stop: Callable[[], bool],
        finish: Callable[[], bool] = lambda: False,
    ) -> list[Measurement]:
        self.wants_finish = finish()
        return [self.measure(task, stop) for task in tasks]


@pytest.fixture
def store(tmp_path: Path) -> BoardStore:
    return BoardStore(tmp_path, "1")


@pytest.fixture
def line() -> Line:
    return Line(io.BytesIO())


def test_one_host_at_a_time_measures(store: BoardStore, line: Line) -> None:
    agent = Counting()
    work = BoardWork(agent, [encode_request(plain_task())])
    with keeper.board_lock(store.folder, "sweep s-1", 0.0, line):
        busy = measure(store, work, "sweep s-2", 0.0, line)
    assert "sweep s-1" in json.loads(busy or "")["busy"]
    assert agent.asked == []


def test_a_result_that_was_kept_is_not_measured_again(store: BoardStore, line: Line) -> None:
    agent = Counting()
    work = BoardWork(agent, [encode_request(plain_task())])
    replies = [measure(store, work, "sweep s-1", 0.0, line) for _ in range(2)]
    with keeper.board_lock(store.folder, "sweep s-2", 0.0, line):
        assert "sweep s-2" in (measure(store, work, "sweep s-1", 0.0, line) or "")
    assert replies[0] == replies[1] == keeper.fetch(store, "t", 0.0, line)
    assert agent.asked == ["t"]
    store.forget("t")
    measure(store, work, "sweep s-1", 0.0, line)
    assert agent.asked == ["t", "t"]


def test_a_round_is_told_that_it_is_to_end(store: BoardStore) -> None:
    agent, line = Counting(), Line(io.BytesIO(FINISH))
    line.watch()
    wait_until(line.wants_finish, "the host's word")
    measure(store, BoardWork(agent, [encode_request(plain_task(blocks=BLOCKS))]), "s-1", 0.0, line)
    assert agent.wants_finish
