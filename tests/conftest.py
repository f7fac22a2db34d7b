"""Settings every test shares; needs nothing but pytest, so that a bare machine can load it.

`pytest --unit` is the set to run between two edits: the tests of the folders below, less those
marked `slow` and those with a marker of special needs. A test of the set that starts a process or
loads a runtime fails.
"""

import atexit
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from cpu_budget import CpuSeconds
from programs import NEEDS

UNIT_FOLDERS = (
    "analysis",
    "device_agents/android",
    "device_agents/contract",
    "device_agents/cuda",
    "device_agents/device_output",
    "device_agents/linux",
    "device_agents/simulated",
    "device_agents/timing",
    "device_agents/phone_farm",
    "foundation",
    "models/cards",
    "models/files",
    "orchestrator/dispatch/decide",
    "orchestrator/export",
    "orchestrator/identity",
    "orchestrator/plan",
    "orchestrator/progress",
    "orchestrator/rows",
    "orchestrator/store",
    "orchestrator/sweep",
    "orchestrator/workspace",
)
"""The folders of `--unit`, with all below them."""
_ALL_SLOW = "\npytestmark = pytest.mark.slow\n"
"""The line of a file whose tests are all slow."""
NOT_UNIT = {"slow", "ray", "export", "browser", "gpu", "android", "adb", "cluster"}
"""Markers that `--unit` leaves out."""
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
HEAVY = {
    "ai_edge_litert", "executorch", "litert_torch", "onnxruntime", "playwright", "ray",
    "tensorflow", "torch",
}  # fmt: skip
"""Libraries that take a second or more to load."""

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import settings
    from hypothesis.internal.conjecture import providers

    # Hypothesis mixes in constants of whatever modules are loaded by then: the examples of a test
    # would follow from the tests that the same process ran before it.
    providers._get_local_constants = providers.Constants
    # Shared machines stall for longer than any per-example deadline; chance is not a test result.
    settings.register_profile("all", deadline=None, derandomize=True)
    # Of a hundred examples, those that find a slip are mostly among the first.
    settings.register_profile("daily", settings.get_profile("all"), max_examples=25)
    settings.register_profile("unit", settings.get_profile("all"), max_examples=10)
    settings.load_profile("daily")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts a script's background jobs so. Children inherit it, and none would hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests that run side by side, and a sweep beside them, do not wait for one another.

    Nothing stays in the temporary folder: logs of adb and Ray, and caches, end with the session,
    or with the next one if it is killed. The path is short, because paths of sockets are. Folders
    of failed tests stay where pytest keeps them.
    """
    from fleetrank.foundation.temporary import make_temporary_folder

    tmp_path_factory.getbasetemp()
    made = make_temporary_folder("t", Path(tempfile.gettempdir()))
    folder = made.path
    (folder / "run").mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        yield
    shutil.rmtree(folder, ignore_errors=True)
    os.close(made.lock)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="the set to run between two edits")
    parser.addoption("--all", action="store_true", help="thorough tests too, and more examples")
    parser.addoption("--cpu-seconds", action="store_true", help="print what each area cost")
    parser.addoption("--hold-budget", action="store_true", help="and fail if that is too dear")


def pytest_configure(config: pytest.Config) -> None:
    hold = config.getoption("--hold-budget")
    if hold or config.getoption("--cpu-seconds"):
        config.pluginmanager.register(CpuSeconds(hold=hold), "cpu-seconds")
    atexit.register(_silence)
    if config.getoption("--all"):
        config.option.markexpr = "not cluster"
    else:
        # Frames of tests are small: threads that wait for each other are a fifth of their cost.
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
    profile = next((one for one in ("unit", "all") if config.getoption(f"--{one}")), "daily")
    if importlib.util.find_spec("hypothesis") is not None:
        settings.load_profile(profile)
    if config.getoption("--unit"):
        watch = _Watch()
        sys.addaudithook(watch.hear)
        config.pluginmanager.register(watch, "unit-watch")


def _silence() -> None:
    """The last to run: DuckDB's binding then prints a hundred lines about what an exit leaves."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Other folders are not even read; `None` leaves the question to pytest."""
    if not config.getoption("--unit"):
        return None
    # As text: comparing paths takes half a second for all files.
    here, path = f"{Path(__file__).parent}/", f"{collection_path}/"
    wanted = [f"{here}{name}/" for name in UNIT_FOLDERS]
    if not any(folder.startswith(path) or path.startswith(folder) for folder in wanted):
        return True
    # A slow file is not imported either: that takes as long as many a test.
    if collection_path.suffix == ".py" and _ALL_SLOW in collection_path.read_text("utf-8"):
        return True
    return None


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for all that was skipped because a program is missing."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    missing = [one.partition(NEEDS)[2] for one in reasons if NEEDS in one]
    if missing:
        packages = " ".join(sorted({name for one in missing for name in one.split()}))
        terminalreporter.write_line(f"{len(missing)} skipped: apt install {packages} runs them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--unit"):
        left = [one for one in items if any(mark.name in NOT_UNIT for mark in one.iter_markers())]
        config.hook.pytest_deselected(items=left)
        items[:] = [one for one in items if one not in set(left)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    gc.disable()  # nearly all that is made while tests are read stays to the end


def pytest_collection_finish() -> None:
    # What was collected is never garbage; tests that collect garbage need not look at it.
    gc.freeze()
    gc.enable()
    # Not before pytest's own last collections; libraries in C report what is left at the end.
    atexit.register(gc.unfreeze)


class _Watch:
    """Fails a test of `--unit` that does what the set is to be free of."""

    def __init__(self) -> None:
        self._seen: list[str] = []

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        """The audit hook; a hook cannot be removed, so it only notes."""
        if event in STARTS:
            self._seen.append(f"starts a process ({event})")
        elif event == "import" and str(arguments[0]).partition(".")[0] in HEAVY:
            self._seen.append(f"imports {arguments[0]}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        self._seen.clear()  # what pytest and its plug-ins start does not concern a test

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        seen, self._seen = self._seen, []
        if seen:
            raise pytest.UsageError(f"{collector.nodeid} of `--unit`, when it is read, {seen[0]}")
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fixtures count, too: they ran before."""
        yield
        seen, self._seen = self._seen, []
        if seen:
            pytest.fail(f"a unit test {seen[0]}: mark it `slow`, or give it what it needs")
