"""A plug-in of pytest: the CPU seconds of each test, held against `tests/budget.toml`.

Wall time depends on the neighbours of a machine, CPU time on the test. A test counts with all
processes that it started, those that still run included; what has left the tree of this process,
such as an adb server, does not count. `--cpu-seconds` prints the table; `--hold-budget` also fails
the run if the sum of all workers is above the limit by more than a quarter.
"""

import collections
import math
import os
import statistics
import time
import tomllib
from array import array
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

BUDGET_FILE = Path(__file__).parents[1] / "budget.toml"
SLACK = 1.25
"""Above limit times this the run fails: equal runs of one machine differ by about a tenth."""
DEAREST = 20
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_EMPTY_RUNS = 20_000
_SAMPLED_EACH_S = 5.0


class Budget:
    """What `make test` may cost on this machine, in CPU seconds.

    Attributes:
        step_ns: how long a run of the timing loop with an empty step takes here.
        limit_s: for all tests; that of a fast machine and of a slow one lie on a power of that
            time, which goes on for machines that are slower still.
    """

    def __init__(self, content: dict[str, dict[str, float]], step_ns: float) -> None:
        """Takes the content of the file, and the speed of this machine."""
        limits, steps = content["limit_s"], content["step_ns"]
        self.step_ns = step_ns
        # A power of the speed: of half of it, always so many times the cost.
        slower = math.log(step_ns / steps["fast"]) / math.log(steps["slow"] / steps["fast"])
        ratio = limits["slow"] / limits["fast"]
        self.limit_s = limits["fast"] * ratio ** max(slower, 0.0)
        share = self.limit_s / limits["slow"]
        self._areas = {path: share * seconds for path, seconds in content["areas_slow_s"].items()}

    def area_of(self, node_id: str) -> str:
        """The longest path of the file that the name of the test begins with."""
        return max((one for one in self._areas if node_id.startswith(one)), key=len, default="")

    def areas(self, seconds_of_test: dict[str, float]) -> list[tuple[str, float, float]]:
        """Area, what it took, and its limit; the one furthest above its limit is first."""
        taken = dict.fromkeys(self._areas, 0.0)
        for node_id, seconds in seconds_of_test.items():
            area = self.area_of(node_id)
            taken[area] = taken.get(area, 0.0) + seconds
        rows = [(area, seconds, self._areas.get(area, 0.0)) for area, seconds in taken.items()]
        return sorted(rows, key=lambda row: row[2] - row[1])


def read_budget(step_ns: float) -> Budget:
    """Reads the file."""
    return Budget(tomllib.loads(BUDGET_FILE.read_text("utf-8")), step_ns)


def empty_step_ns() -> float:
    """CPU time of one run of the timing loop with an empty step; takes about 5 ms."""
    from fleetrank.device_agents.timing import NOTHING, fill

    samples, clock = array("q", bytes(8 * _EMPTY_RUNS)), time.perf_counter_ns
    start = time.thread_time_ns()
    fill(samples, 0, _EMPTY_RUNS, (lambda: None, clock, clock() + 10**12), NOTHING)
    return (time.thread_time_ns() - start) / _EMPTY_RUNS


def spent_s() -> float:
    """CPU seconds of this process and of all its children, ended or still running."""
    return sum(os.times()[:4]) + _TICK_S * sum(_ticks(pid) for pid in _children(os.getpid()))


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            yield from map(int, (task / "children").read_text("ascii").split())
        except OSError:  # the thread has ended
            continue


def _ticks(pid: int) -> int:
    """Of a running process, of its children that ended, and of those that run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) + sum(map(_ticks, _children(pid)))
    except OSError:  # it has ended: its parent has its time
        return 0


class CpuSeconds:
    """Counts, adds up what the workers counted, and prints where it went."""

    def __init__(self, *, hold: bool) -> None:
        """With `hold`, a run that is too dear fails."""
        self._hold = hold
        self._last_s = spent_s()
        self._of_test: dict[str, float] = collections.defaultdict(float)
        self._of_workers_s = 0.0
        self._steps_ns: list[float] = []
        """The speed of the machine while the tests run: what slows them slows an empty step."""
        self._sampled_s = 0.0
        self._sum_s = 0.0
        self._budget: Budget | None = None

    def pytest_collection_finish(self) -> None:
        """From here on all time belongs to a test."""
        self._last_s = spent_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """The last report of a test has its seconds, which travel as its other values."""
        report = yield
        if call.when == "teardown":  # reading the times of all processes costs half a millisecond
            now_s = spent_s()
            report.cpu_s = now_s - self._last_s
            self._last_s = now_s
            if time.monotonic() - self._sampled_s > _SAMPLED_EACH_S:
                self._steps_ns.append(empty_step_ns())
                self._sampled_s = time.monotonic()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Runs in each worker, and for all of them in the process that was started."""
        self._of_test[report.nodeid] += getattr(report, "cpu_s", 0.0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """A worker has ended, and stated its sum with its start and its imports."""
        output = getattr(node, "workeroutput", {})
        self._of_workers_s += output.get("cpu_s", 0.0)
        self._steps_ns += output.get("steps_ns", [])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker states its sum; the process that was started judges all of them."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["cpu_s"], output["steps_ns"] = spent_s(), self._steps_ns
            return
        # Workers that were waited for are in the sum of this process, too.
        self._sum_s = max(spent_s(), self._of_workers_s + sum(os.times()[:2]))
        self._budget = read_budget(statistics.median(self._steps_ns or [empty_step_ns()]))
        if self._hold and not session.exitstatus and self._sum_s > SLACK * self._budget.limit_s:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Every area with its budget, and the dearest tests."""
        budget = self._budget
        if budget is None:
            return
        write, of_test = terminalreporter.write_line, self._of_test
        terminalreporter.section("CPU seconds")
        for node_id, seconds in sorted(of_test.items(), key=lambda one: -one[1])[:DEAREST]:
            write(f"{seconds:6.1f}  {node_id}")
        for area, seconds, limit_s in budget.areas(of_test):
            above = "  above its budget" if seconds > limit_s else ""
            write(f"{seconds:6.1f} of {limit_s:4.0f}  {area or 'others'}{above}")
        write(f"{self._sum_s - sum(of_test.values()):6.1f}          start, imports, collection")
        machine = f"a machine on which an empty step takes {budget.step_ns:.0f} ns"
        write(f"{self._sum_s:6.1f} of {budget.limit_s:4.0f}  in all ({machine})")
