"""Commands that read results wait for a measurement only if their work is long."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import polars as pl
import pytest
from fleet_rows import SWEEP
from typer.main import get_command
from waiting import wait_until
from wording import has

from fleetrank.analysis.stored.load import load_measurements
from fleetrank.foundation.lease import host_lease
from fleetrank.orchestrator.cli import reading_turn
from fleetrank.orchestrator.cli.context import is_reading, settle_for_reading
from fleetrank.orchestrator.cli.main import COMMANDS, build_app, run
from fleetrank.orchestrator.cli.reading_turn import SHORT_S, Work, work_s
from fleetrank.orchestrator.compute.child import ONE_BLAS_THREAD
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.reading_errors import explained_errors

SHORT_WORK = [
    "report show transfer", "report show trust", "predict --device pixel-7",
    "query SELECT+count(*)+FROM+measurements", "results export", "results exclude",
]  # fmt: skip
LONG_WORK = "report show trust --part ceiling"


@pytest.fixture
def measuring() -> Iterator[None]:
    """Another sweep, in whatever workspace."""
    with host_lease("sweep s-1, which measures here"):
        yield


@pytest.fixture
def nothing_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_turn, "SHORT_S", 0.0)


def test_the_estimate_counts_rows_and_for_pairs_the_cells(workspace: Path, tmp_path: Path) -> None:
    assert work_s([], Work.PAIRS) == 0.0
    small = list((workspace / "results").glob("measurements/*/*.parquet"))
    assert 0 < work_s(small, Work.ROWS) < work_s(small, Work.PAIRS) < SHORT_S
    large = [tmp_path / "part.parquet"]
    cells = {"model": [f"m{at}" for at in range(1100)], "platform_key": "p"}
    pl.DataFrame(cells).write_parquet(large[0])
    assert work_s(large, Work.ROWS) < SHORT_S < work_s(large, Work.PAIRS)
    assert work_s(large, Work.CHECKSUMS) == pytest.approx(10 * work_s(large, Work.ROWS))
    large[0].write_bytes(b"PAR1 nothing")
    assert work_s(large, Work.PAIRS) == 0.0


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


def test_rows_that_vanish_while_they_are_read_are_named(workspace: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(workspace / "results", tmp_path / "results")
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


def test_long_work_waits_and_says_for_what_since_when_and_how_to_skip(
    workspace: Path, nothing_is_short: None, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    words = [*LONG_WORK.split(), "--workspace", str(workspace)]
    waiting = Thread(target=lambda: codes.append(run(words)))
    said: list[str] = []

    def is_announced() -> bool:
        said.append(capsys.readouterr().err)
        return "waiting" in "".join(said)

    with host_lease("sweep s-1, which measures here"):
        waiting.start()
        wait_until(is_announced, "the notice")
        text = "".join(said)
        assert has(text, "s-1", str(os.getpid()), "since", "--now")
        assert len(text.strip().splitlines()) == 1
        assert codes == []
    waiting.join(60)
    assert codes == [0]


@pytest.mark.parametrize("line", SHORT_WORK, ids=lambda line: line[:24])
def test_short_work_starts_beside_a_measurement(asked, measuring: None, line: str) -> None:
    answer = asked("", *(word.replace("+", " ") for word in line.split()))
    assert (answer.code, "waiting" in answer.err) == (0, False)


def test_now_starts_long_work_at_once(asked, measuring: None, nothing_is_short: None) -> None:
    answer = asked(f"{LONG_WORK} --now")
    assert (answer.code, "waiting" in answer.err) == (0, False)


@pytest.mark.parametrize(
    "line",
    [
        "report show trnsfer", f"{LONG_WORK} --k 1", f"{LONG_WORK} --model no-such-model",
        "report show transfer --source no-such-device", "report show choose --goal no-such-goal",
        f"report compare {SWEEP} {SWEEP}",
    ],
)  # fmt: skip
def test_a_wrong_argument_is_reported_before_any_wait(
    asked, measuring: None, nothing_is_short: None, line: str
) -> None:
    answer = asked(line)
    assert answer.code in (2, 4)
    assert "waiting" not in answer.err
