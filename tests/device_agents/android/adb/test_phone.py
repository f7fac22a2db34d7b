"""One phone through the real adb, in both versions, against the virtual phone."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from adb_bench import AdbBench, open_bench, wait_until_back
from daily import daily
from phone_farm.faults import Fault

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.device_output import CUT, MAX_PROBE_BYTES
from fleetrank.device_agents.errors import (
    BadOutputError,
    StoppedError,
    TimedOutError,
    TransientError,
)

pytestmark = pytest.mark.adb

FOLDER = "/data/local/tmp"
NAMES = (
    "two words",
    'it\'s "quoted"',
    "a;touch pwned",
    "$(touch pwned)`touch pwned`",
    "line\nbreak",
    "-rf",
    "*?[a]{b,c}~&|<>!#%\\",
    "grüße 漢字",
)


@pytest.fixture(scope="module")
def calm(adb_server: AdbServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbBench]:
    """A phone that the tests share which leave it as it was."""
    with open_bench(adb_server, tmp_path_factory.mktemp("phones"), Path.home()) as opened:
        yield opened


@pytest.fixture
def big_file(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(1024 * 1024) * 20)
    return path


def test_a_script_gives_its_exit_code_and_both_streams(calm: AdbBench) -> None:
    found = calm.phone.shell('echo "out $1"; echo err >&2; exit "$2"', "x", "7", timeout_s=20)
    assert (found.exit_code, found.stdout, found.stderr) == (7, "out x\n", "err\n")


def test_no_argument_is_read_by_a_shell(bench: AdbBench) -> None:
    script = 'for name; do printf "%s\\0" "$name"; done; touch -- "$1"'
    found = bench.phone.shell(f"cd {FOLDER}; {script}", *NAMES, timeout_s=20)
    assert found.stdout == "".join(f"{name}\0" for name in NAMES)
    listed = [path.name for path in (bench.farmed.folder / FOLDER[1:]).iterdir()]
    assert listed == [NAMES[0]]


def test_files_travel_under_hostile_names_and_nothing_is_run(
    bench: AdbBench, tmp_path: Path
) -> None:
    for name in NAMES:
        local = tmp_path / f"local {name}"
        local.write_bytes(os.urandom(100_000))
        bench.phone.push(local, f"{FOLDER}/{name}", 20.0)
        back = tmp_path / f"back {name}"
        bench.phone.pull(f"{FOLDER}/{name}", back, max_bytes=100_000, timeout_s=20.0)
        assert back.read_bytes() == local.read_bytes()
    on_phone = {path.name for path in (bench.farmed.folder / FOLDER[1:]).iterdir()}
    assert on_phone == set(NAMES)
    assert not list(bench.farmed.folder.rglob("pwned"))


def test_a_push_clears_away_what_pushes_of_the_same_file_left_that_were_cut_off(
    calm: AdbBench, tmp_path: Path
) -> None:
    folder = calm.farmed.folder / FOLDER[1:]
    for stray in ("tool.0123abcd.part", "other.0123abcd.part", "tool.txt"):
        (folder / stray).write_text("half")
    local = tmp_path / "tool"
    local.write_text("whole")
    calm.phone.push(local, f"{FOLDER}/tool", 20.0)
    assert (folder / "tool").read_text() == "whole"
    left = {path.name for path in folder.iterdir() if path.name.startswith(("tool", "other"))}
    assert left == {"tool", "other.0123abcd.part", "tool.txt"}


def test_a_missing_a_large_and_an_odd_file_are_refused_and_leave_nothing(
    calm: AdbBench, tmp_path: Path
) -> None:
    (calm.farmed.folder / FOLDER[1:] / "large").write_bytes(bytes(1001))
    local = tmp_path / "out"
    for name in ("missing", "large", ""):
        with pytest.raises(BadOutputError):
            calm.phone.pull(f"{FOLDER}/{name}", local, max_bytes=1000, timeout_s=20.0)
    assert not list(tmp_path.glob("out*"))


def test_a_phone_without_exit_codes_gives_them_by_a_marker(bench: AdbBench) -> None:
    bench.inject(Fault.NO_EXIT_CODES)
    wait_until_back(bench.phone, limit_s=30)
    assert not bench.phone.has_exit_codes()
    found = bench.phone.shell('echo "$1"; echo err >&2; exit 7', "$(id) '", timeout_s=20)
    assert (found.exit_code, found.stdout, found.stderr) == (7, "$(id) '\nerr\n", "")


def test_a_phone_that_hangs_is_given_up_in_time_and_found_again(calm: AdbBench) -> None:
    calm.inject(Fault.HANG)
    started_ns = time.perf_counter_ns()
    with pytest.raises(TimedOutError):
        calm.phone.shell("true", timeout_s=1.0)
    assert time.perf_counter_ns() - started_ns < 5e9
    calm.clear(Fault.HANG)
    assert calm.phone.shell("echo back", timeout_s=20).stdout == "back\n"


def test_a_script_that_does_not_end_is_given_up_and_ended_on_the_phone(calm: AdbBench) -> None:
    script = f"echo $$ > {FOLDER}/pid; sleep 60"
    with pytest.raises(TimedOutError):
        calm.phone.shell(script, timeout_s=1.0)
    pid = int((calm.farmed.folder / FOLDER[1:] / "pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.05)
    pytest.fail("the script runs on")


def test_the_user_can_end_a_script(calm: AdbBench) -> None:
    started_ns = time.perf_counter_ns()
    with pytest.raises(StoppedError):
        calm.phone.shell(
            "sleep 60",
            timeout_s=60.0,
            stop_requested=lambda: time.perf_counter_ns() - started_ns > 0.5e9,
        )
    assert time.perf_counter_ns() - started_ns < 5e9


@pytest.mark.parametrize("has_exit_codes", daily([True, False], True))
def test_output_without_end_is_refused_at_the_bound_of_its_command(
    bench: AdbBench, has_exit_codes: bool
) -> None:
    if not has_exit_codes:
        bench.inject(Fault.NO_EXIT_CODES)
        wait_until_back(bench.phone, limit_s=30)
    endless = "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxx; done"
    for max_bytes in (MAX_PROBE_BYTES, 1_000_000):
        with pytest.raises(BadOutputError, match=f"more than {max_bytes} bytes.*xxxxx"):
            bench.phone.shell(endless, timeout_s=60.0, max_bytes=max_bytes)


def test_a_long_line_of_a_phone_is_cut_and_says_so(calm: AdbBench) -> None:
    found = calm.phone.shell("printf 'a\\n%05000d\\nb\\n' 0; printf '%09000d' 1 >&2", timeout_s=20)
    assert found.stdout == f"a\n{'0' * 4096}{CUT}\nb\n"
    assert found.stderr == f"{'0' * 4096}{CUT}"


def test_a_cable_pulled_while_pushing_leaves_no_file_and_the_next_push_works(
    bench: AdbBench, big_file: Path
) -> None:
    bench.inject(Fault.DROP_PUSH)
    with pytest.raises(TransientError):
        bench.phone.push(big_file, f"{FOLDER}/model", 30.0)
    assert not (bench.farmed.folder / FOLDER[1:] / "model").exists()
    wait_until_back(bench.phone, limit_s=30)
    bench.phone.push(big_file, f"{FOLDER}/model", 30.0)
    pushed = (bench.farmed.folder / FOLDER[1:] / "model").read_bytes()
    assert hashlib.sha256(pushed).digest() == hashlib.sha256(big_file.read_bytes()).digest()


@pytest.mark.parametrize("has_exit_codes", daily([True, False], True))
def test_a_cable_pulled_in_a_run_never_looks_like_an_end(
    bench: AdbBench, has_exit_codes: bool
) -> None:
    if not has_exit_codes:
        bench.inject(Fault.NO_EXIT_CODES)
        wait_until_back(bench.phone, limit_s=30)
    bench.inject(Fault.DROP_RUN)  # strikes what looks like a runner with its artifact
    names = (f"{FOLDER}/fleetrank/tools/a/tool", f"{FOLDER}/fleetrank/artifacts/b.tflite")
    with pytest.raises(TransientError, match="was interrupted"):
        bench.phone.shell("echo half; sleep 2", *names, timeout_s=20)
    wait_until_back(bench.phone, limit_s=30)
    assert bench.phone.shell("echo whole", timeout_s=20).stdout == "whole\n"


def test_a_phone_that_is_not_there_is_transient(calm: AdbBench) -> None:
    for serial in ("no such phone", "a;touch x", "$(id)", "x\ny", "usb:1-1"):
        phone = type(calm.phone)(calm.phone.server, serial)
        with pytest.raises(TransientError):
            phone.shell("true", timeout_s=20)
