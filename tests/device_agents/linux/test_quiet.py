"""A busy host asks for time, if the sweep wants a quiet one."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import psutil
import pytest
from daily import daily

from fleetrank.device_agents.contract.task import BlockPolicy
from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.device_agents.errors import NotFitError
from fleetrank.device_agents.linux.conditions import CpuTime
from fleetrank.device_agents.linux.quiet import require_quiet
from fleetrank.foundation.vocabulary import ErrorKind
from tests.device_agents.conftest import plain_task

START = CpuTime(busy=1000, steal=50, total=9000)
NUMBERS = itertools.count(1)
TASK = plain_task(task_id="s/c/0/0", quiet_s=60.0)


def ask(busy: int, steal: int, total: int = 400) -> None:
    later = CpuTime(busy=START.busy + busy, steal=START.steal + steal, total=START.total + total)
    readings = iter([START, later])
    require_quiet(60.0, read=lambda: next(readings), sleep=lambda _: None)


def test_a_quiet_host_is_measured_at_once() -> None:
    ask(busy=40, steal=20)  # the limits themselves


@pytest.mark.parametrize(("busy", "steal"), [(41, 0), (0, 21)])
def test_a_host_above_a_limit_of_the_flag_asks_for_time(busy: int, steal: int) -> None:
    with pytest.raises(NotFitError) as raised:
        ask(busy, steal)
    assert raised.value.limit_s == 60.0
    assert "quiet" in raised.value.remedy


def test_a_system_that_reports_no_use_is_taken_as_quiet() -> None:
    require_quiet(60.0, read=lambda: None, sleep=lambda _: None)


@contextmanager
def neighbours() -> Iterator[None]:
    """Processes that use more than 10 % of the cores."""
    n = (psutil.cpu_count() or 1) // 5 + 1
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def busy_reading() -> CpuTime:
    number = next(NUMBERS)
    return CpuTime(busy=50 * number, steal=0, total=100 * number)


@pytest.mark.slow
@pytest.mark.parametrize("is_real", daily([False, True], False))
def test_every_cell_asks_for_time_beside_a_neighbour_and_none_without_the_wish(
    is_real: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [replace(TASK, task_id=f"t{n}", blocks=BlockPolicy()) for n in range(2)]
    if not is_real:
        look = partial(require_quiet, read=busy_reading, sleep=lambda _: None)
        monkeypatch.setattr("fleetrank.device_agents.cpu.require_quiet", look)
    with neighbours() if is_real else nullcontext():
        assert CpuAgent({}).measure(replace(TASK, quiet_s=None)).failure.wait is None
        alone = CpuAgent({}).measure(TASK)
        in_turns = CpuAgent({}).measure_round(tasks)
    assert [one.task_id for one in in_turns] == ["t0", "t1"]
    for one in (alone, *in_turns):
        assert one.failure.kind is ErrorKind.UNFIT_CONDITIONS
        assert one.failure.wait.limit_s == 60.0
