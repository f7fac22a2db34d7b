import sys
import time

from device_agents.failures import End
from device_agents.process import run_worker

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
