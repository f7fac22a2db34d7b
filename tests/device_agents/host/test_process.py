import sys
import time
from itertools import chain, islice, repeat

import pytest

from fleetrank.device_agents.contract.failures import End
from fleetrank.device_agents.host.process import run_worker

pytestmark = pytest.mark.slow

ENDLESS = "import os\nwhile True: os.write(2, b'x' * 65536)"


def test_a_worker_that_never_stops_writing_is_ended_at_its_limit() -> None:
    started = time.perf_counter_ns()
    end = run_worker("", timeout_s=1.0, command=(sys.executable, "-c", ENDLESS))
    assert end.end is End.TIME_LIMIT
    assert time.perf_counter_ns() - started < 5_000_000_000


def test_the_last_output_of_an_ended_worker_is_kept() -> None:
    command = (sys.executable, "-c", "print('x' * 300_000)")
    end = run_worker("", timeout_s=30.0, command=command)
    assert end.end is End.ITSELF
    assert len(end.stdout) == 300_001


def test_a_pipe_that_is_never_empty_is_read_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    chunks = chain(islice(repeat(b"x"), 1000), repeat(None))
    monkeypatch.setattr("fleetrank.device_agents.host.process._read", lambda _fd: next(chunks))

    def stop() -> bool:
        rounds.append(1)
        return next(chunks) == b"x"

    command = (sys.executable, "-c", ENDLESS)
    end = run_worker("", timeout_s=2.0, stop_requested=stop, command=command)
    assert (end.end, len(rounds)) == (End.STOP, 1)
