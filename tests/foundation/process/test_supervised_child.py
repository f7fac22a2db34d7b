"""A child process ends in every case, with all that it started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, repeat
from pathlib import Path

import psutil
import pytest
from waiting import is_soon_gone

from fleetrank.foundation import supervised_child
from fleetrank.foundation.supervised_child import (
    ChildEnd,
    End,
    SupervisedChild,
    exit_name,
    run_child,
)

pytestmark = pytest.mark.slow

ENDLESS = "import os\nwhile True: os.write(2, b'x' * 65536)"
SLEEPS_ELSEWHERE = """
import os, subprocess, sys, time
done, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(told, b"x")
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
os.read(done, 1)
"""


def run(script: str, timeout_s: float = 30.0, stop: Callable[[], bool] | None = None) -> ChildEnd:
    command = (sys.executable, "-c", script)
    return run_child(command, "hello", timeout_s=timeout_s, stop_requested=stop or (lambda: False))


@pytest.fixture
def echo() -> Iterator[SupervisedChild]:
    script = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    child = SupervisedChild((sys.executable, "-c", script))
    yield child
    child.end()


def later_ns(seconds: float = 30.0) -> int:
    return time.perf_counter_ns() + int(seconds * 1e9)


def test_messages_without_end_are_ended_at_the_bound_of_a_result() -> None:
    end = run(ENDLESS)
    assert end.end is End.TOO_MUCH_OUTPUT
    assert len(end.stderr) == supervised_child.MAX_STDERR_BYTES


def test_a_child_that_writes_slowly_is_ended_at_its_time() -> None:
    started = time.perf_counter_ns()
    slow = "import os, time\nwhile True: os.write(2, b'x'); time.sleep(0.01)"
    assert run(slow, 0.3).end is End.TIME_LIMIT
    assert time.perf_counter_ns() - started < 5_000_000_000


def test_the_last_output_of_an_ended_child_is_kept() -> None:
    end = run("print('x' * 300_000)")
    assert end.end is End.ITSELF
    assert len(end.stdout) == 300_001


def test_a_result_without_end_is_ended() -> None:
    assert run("[print('x' * 65536) for _ in iter(int, 1)]").end is End.TOO_MUCH_OUTPUT


def test_only_the_end_of_the_messages_is_kept() -> None:
    end = run("import sys; print('first' + 'x' * 200_000 + 'last', file=sys.stderr)")
    assert end.stderr.endswith("last\n")
    assert len(end.stderr) == supervised_child.MAX_STDERR_BYTES


def test_a_pipe_that_is_never_empty_is_read_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    chunks = chain(islice(repeat(b"x"), 1000), repeat(None))
    monkeypatch.setattr(supervised_child, "_read", lambda _fd: next(chunks))

    def stop() -> bool:
        rounds.append(1)
        return next(chunks) == b"x"

    assert (run(ENDLESS, 2.0, stop).end, len(rounds)) == (End.STOP, 1)


@pytest.mark.parametrize("ending", ["", "os.abort()", "time.sleep(600)"])
def test_a_daemon_without_group_and_environment_ends_however_the_child_ends(ending: str) -> None:
    child = SupervisedChild((sys.executable, "-c", SLEEPS_ELSEWHERE + ending))
    child.wait(deadline_ns=later_ns(), is_complete=lambda said: b"\n" in said)
    child.wait(deadline_ns=later_ns(30.0 if "sleep" not in ending else 0.1))
    child.end()
    assert not Path(f"/proc/{int(child.stdout)}").exists()


def test_a_daemon_ends_when_the_parent_of_its_child_is_killed() -> None:
    script = (
        "from fleetrank.foundation.supervised_child import SupervisedChild; "
        f"import sys, time; child = SupervisedChild(('python3', '-c', {SLEEPS_ELSEWHERE!r} + "
        "'time.sleep(600)')); child.wait(deadline_ns=2**63, is_complete=len); "
        "print(child.stdout.decode(), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        daemon = int(parent.stdout.readline())
        parent.kill()
    assert is_soon_gone(daemon)


def test_a_child_outlives_the_thread_that_started_it() -> None:
    with ThreadPoolExecutor(1) as pool:
        command = ("sh", "-c", "echo started; exec sleep 600")
        child = pool.submit(SupervisedChild, command).result()
    try:
        assert child.wait(deadline_ns=later_ns(), is_complete=bool) is End.COMPLETE
        assert child.wait(deadline_ns=later_ns(0.3)) is End.TIME_LIMIT
    finally:
        assert child.end() == -signal.SIGKILL


def test_a_process_of_another_child_is_left_alone() -> None:
    other = SupervisedChild(("sh", "-c", "echo started; exec sleep 600"))
    try:
        other.wait(deadline_ns=later_ns(), is_complete=bool)
        run("pass")
        assert not other.has_ended()
    finally:
        assert other.end() == -signal.SIGKILL


def test_a_child_answers_more_than_once(echo: SupervisedChild) -> None:
    for line in (b"one\n", b"two\n"):
        echo.stdout.clear()
        echo.send(line)
        end = echo.wait(deadline_ns=later_ns(), is_complete=lambda got, line=line: got == line)
        assert end is End.COMPLETE


def test_an_answer_that_never_comes_ends_the_wait_and_not_the_child(echo: SupervisedChild) -> None:
    assert echo.wait(deadline_ns=later_ns(0.05)) is End.TIME_LIMIT
    assert not echo.has_ended()


def test_another_thread_can_kill_a_child_that_is_waited_for(echo: SupervisedChild) -> None:
    def kill_once_it_runs() -> bool:
        if echo.stdout:  # before it runs, the reaper would die of the signal that it waits for
            echo.kill()
        return False

    echo.send(b"I run\n")
    assert echo.wait(deadline_ns=later_ns(), stop_requested=kill_once_it_runs) is End.ITSELF
    assert echo.end() == -signal.SIGKILL


def test_the_group_is_killed_while_its_number_is_still_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: seen.append(psutil.Process(pid).status()))
    run("pass")
    assert seen == [psutil.STATUS_ZOMBIE]


def test_a_child_that_reads_nothing_can_be_sent_to() -> None:
    child = SupervisedChild(("true",))
    assert child.wait(deadline_ns=later_ns()) is End.ITSELF
    child.send(b"x" * 1_000_000)
    assert child.end() == 0
    assert child.end() == 0


def test_a_child_ends_as_its_program_did() -> None:
    assert run("import sys; sys.exit(77)").exit_code == 77
    assert run("import os; os.abort()").exit_code == -signal.SIGABRT
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGTERM)").exit_code == -15


def test_a_program_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        SupervisedChild(("no-such-program",))


def test_a_signal_has_its_name() -> None:
    assert (exit_name(-9), exit_name(-64), exit_name(3)) == ("SIGKILL", "SIGRTMAX", "exit code 3")
    assert exit_name(-200) == "signal 200"
