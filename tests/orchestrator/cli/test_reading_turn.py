"""Commands that read results wait for a measurement only if their work is long."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from fleet_rows import NETS, PLACES, SWEEP, write_results
from typer.main import get_command
from waiting import wait_until
from wording import has

from fleetrank.analysis.stored.load import load_measurements
from fleetrank.orchestrator.cli.context import is_reading, settle_for_reading
from fleetrank.orchestrator.cli.main import COMMANDS, build_app, run
from fleetrank.orchestrator.cli.reading_turn import SHORT_S, Work, work_s
from fleetrank.orchestrator.compute.child import ONE_BLAS_THREAD
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.reading_errors import explained_errors

HOLDER = """
import sys
from fleetrank.foundation.lease import host_lease
with host_lease("sweep s-1, which measures here"):
    print("held", flush=True)
    sys.stdin.read()
"""
LONG = 1
"""Index of the workspace whose pairs take more than a second."""
SHORT_WORK = [
    ["report", "show", "transfer"],
    ["report", "show", "trust"],
    ["predict", "--device", "pixel-7"],
    ["query", "SELECT count(*) FROM measurements"],
    ["results", "export"],
    ["results", "exclude"],
]


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    small, large = (tmp_path_factory.mktemp(name) for name in ("small", "large"))
    for root in (small, large):
        (root / "cluster.yaml").write_text("cluster_name: test\n")
    write_results(small / "results", n_samples=3)
    nets = [replace(net, name=f"{net.name}-{at}") for net in NETS for at in range(14)]
    write_results(large / "results", nets=nets, places=PLACES, repeats=1, n_samples=3)
    return small, large


@contextmanager
def measures() -> Iterator[subprocess.Popen[str]]:
    """Another process that measures on this host, in whatever workspace."""
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture(scope="module")
def measuring() -> Iterator[subprocess.Popen[str]]:
    with measures() as process:
        yield process


def parts_of(root: Path) -> list[Path]:
    return list((root / "results").glob("measurements/*/*.parquet"))


def test_the_estimate_counts_rows_and_for_pairs_the_cells(workspaces: tuple[Path, Path]) -> None:
    small, large = map(parts_of, workspaces)
    assert work_s([], Work.PAIRS) == 0.0
    assert 0 < work_s(small, Work.ROWS) < work_s(small, Work.PAIRS) < SHORT_S
    assert work_s(large, Work.ROWS) < SHORT_S < work_s(large, Work.PAIRS)
    assert work_s(large, Work.CHECKSUMS) == pytest.approx(10 * work_s(large, Work.ROWS))


def test_commands_that_need_not_wait_and_the_server_are_those_that_run_at_low_priority() -> None:
    reading, can_skip = set(), set()
    for name in COMMANDS:
        command = get_command(build_app([name])).commands[name]
        for inner, one in getattr(command, "commands", {"": command}).items():
            words = (name, inner) if inner else (name,)
            reading |= {words} if is_reading(words) else set()
            # The tables of `report show` are commands below it, with the same options.
            below = [one, *getattr(one, "commands", {}).values()]
            has_now = any(option.name == "now" for each in below for option in each.params)
            can_skip |= {words} if has_now else set()
    assert reading == can_skip | {("report", "serve")}
    assert not is_reading(["results", "verify", "--repair"])
    assert not is_reading(["results", "import", "elsewhere", "--from", "workspace"])
    assert not is_reading([])


def test_rows_that_vanish_while_they_are_read_are_named(
    workspaces: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = shutil.copytree(workspaces[0] / "results", tmp_path / "results")
    frame = load_measurements(copy)
    frame.collect_schema()
    for path in (*copy.glob("sweeps/*.parts"), *copy.glob("measurements/*/*.parquet")):
        path.unlink()
    with (
        pytest.raises(StoreError, match="deleted while"),
        explained_errors(copy),
    ):
        frame.collect()


def test_only_reading_takes_one_thread_and_low_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[bool] = []
    place = "fleetrank.orchestrator.cli.context.lower_priority"
    monkeypatch.setattr(place, lambda: lowered.append(True))
    for name in ONE_BLAS_THREAD:
        monkeypatch.setenv(name, "7")
    settle_for_reading(["sweep", "run", "report"])
    assert (lowered, os.environ["OMP_NUM_THREADS"]) == ([], "7")
    settle_for_reading(["report", "build"])
    assert lowered == [True]
    assert {name: os.environ[name] for name in ONE_BLAS_THREAD} == ONE_BLAS_THREAD


def test_a_damaged_file_is_no_work_to_wait_for(tmp_path: Path) -> None:
    (tmp_path / "part.parquet").write_bytes(b"PAR1 nothing")
    assert work_s([tmp_path / "part.parquet"], Work.PAIRS) == 0.0


def test_long_work_waits_and_says_for_what_since_when_and_how_to_skip(workspaces, capsys) -> None:
    codes: list[int] = []
    words = ["report", "show", "trust", "--part", "ceiling", "--workspace", str(workspaces[LONG])]
    waiting = Thread(target=lambda: codes.append(run(words)))
    said: list[str] = []

    def is_announced() -> bool:
        said.append(capsys.readouterr().err)
        return "waiting" in "".join(said)

    with measures() as measuring:
        waiting.start()
        wait_until(is_announced, "the notice")
        text = "".join(said)
        assert has(text, "s-1", str(measuring.pid), "since", "--now")
        assert len(text.strip().splitlines()) == 1
        assert codes == []
    waiting.join(60)
    assert codes == [0]


@pytest.mark.parametrize("words", SHORT_WORK, ids=lambda words: "-".join(words[:3])[:24])
def test_short_work_starts_beside_a_measurement(words, workspaces, measuring, capsys) -> None:
    assert run([*words, "--workspace", str(workspaces[0])]) == 0
    assert "waiting" not in capsys.readouterr().err
    assert measuring.poll() is None


def test_now_starts_long_work_at_once(workspaces, measuring, capsys) -> None:
    words = ["report", "show", "trust", "--part", "ceiling", "--now"]
    assert run([*words, "--workspace", str(workspaces[LONG])]) == 0
    assert "waiting" not in capsys.readouterr().err
    assert measuring.poll() is None


@pytest.mark.parametrize(
    "words",
    [
        ["report", "show", "trnsfer"],
        ["report", "show", "trust", "--part", "ceiling", "--k", "1"],
        ["report", "show", "trust", "--part", "ceiling", "--model", "no-such-model"],
        ["report", "show", "transfer", "--source", "no-such-device"],
        ["report", "show", "choose", "--goal", "no-such-goal"],
        ["report", "compare", SWEEP, SWEEP],
    ],
    ids=lambda words: "-".join(words[1:3]),
)
def test_a_wrong_argument_is_reported_before_any_wait(words, workspaces, measuring, capsys) -> None:
    assert run([*words, "--workspace", str(workspaces[LONG])]) in (2, 4)
    assert "waiting" not in capsys.readouterr().err
    assert measuring.poll() is None
