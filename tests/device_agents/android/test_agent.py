"""One test for each fault of a phone, through the agent and the real adb."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from adb_bench import AdbBench, open_bench
from phone_agent import TINY_TFLITE, leftovers, phone_options

from fleetrank.device_agents.android.adb.adb_server import AdbServer
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_files import file_sha256, read_program
from fleetrank.device_agents.android.execution.storage import ProgramStore
from fleetrank.device_agents.android.state.identity import phone_lease, probe_phone
from fleetrank.device_agents.android.state.settings import FOLDER
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import CanaryTask, Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.host.patience import measure_when_fit
from fleetrank.device_agents.virtual_phone.handset.faults import Fault
from fleetrank.device_agents.virtual_phone.imitation.command import stand_in_of
from fleetrank.foundation.codec import to_json
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    Flag,
    Origin,
    Runtime,
    SampleKind,
    Status,
)

# The newer adb alone: what differs between versions is in test_phone.py.
pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]

QUICK = MeasurePolicy(min_warmup_runs=2, min_warmup_s=0.0, min_runs=8, max_time_s=0.1)
ENDLESS = replace(QUICK, min_runs=10**7, max_time_s=600.0)
PID = "data/local/tmp/fleetrank/run/0/pid"
HOSTILE = 'a\'b "c";$(touch pwned)`touch pwned`\nd'


def make_task(**changes: object) -> MeasureTask:
    sha256 = file_sha256(TINY_TFLITE)
    task = MeasureTask(
        task_id="sweep/cell/0/0",
        artifact_path=str(TINY_TFLITE),
        artifact_sha256=sha256,
        execution=Execution(runtime=Runtime.TFLITE, backend="xnnpack", affinity=(4, 5)),
        policy=QUICK,
        timeout_s=30.0,
    )
    return replace(task, **changes)


def make_canary(reference_ns: int, **changes: bool) -> CanaryTask:
    canary = CanaryTask(
        artifact_path=str(TINY_TFLITE),
        artifact_sha256=file_sha256(TINY_TFLITE),
        affinity=None,
        reference_ns=reference_ns,
        spread=None,
        runs_before=False,
        runs_after=False,
    )
    return replace(canary, **changes)


NewAgent = Callable[..., AndroidAgent]


@pytest.fixture
def new_agent(bench: AdbBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NewAgent:
    """The agent of the phone; keyword arguments are further options."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = phone_options(bench.phone.server, bench.farmed.address)
    return lambda **more: AndroidAgent({**options, **more})


@pytest.fixture
def agent(new_agent: NewAgent) -> AndroidAgent:
    return new_agent()


def failure_of(seen: Measurement) -> Failure:
    """The failure, complete."""
    assert seen.status is Status.FAILED
    assert seen.failure is not None
    assert seen.failure.message
    assert seen.failure.remedy
    assert seen.origin is Origin.VIRTUAL
    return seen.failure


def assert_good(seen: Measurement, bench: AdbBench) -> None:
    """A row to count, and nothing left on the phone."""
    assert seen.status is Status.OK, seen.failure
    assert seen.summary is not None
    assert seen.origin is Origin.VIRTUAL
    assert leftovers(bench.farmed.folder) == []


def wait_until_it_runs(bench: AdbBench) -> None:
    end_s = time.monotonic() + 20
    while not (bench.farmed.folder / PID).exists():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def measure_patiently(agent: AndroidAgent, task: MeasureTask) -> Measurement:
    """As the scheduler does: after a cut adb needs a moment to see the phone again."""
    return measure_when_fit(agent, task, print)


def hang_when_it_runs(bench: AdbBench) -> None:
    wait_until_it_runs(bench)
    bench.farm.inject(0, Fault.HANG, duration_s=3.0)


def test_a_repeat_has_all_that_its_row_needs(agent: AndroidAgent, bench: AdbBench) -> None:
    seen = agent.measure(make_task(canary=make_canary(10**6, runs_after=True)))
    assert seen.conditions_after is not None
    assert seen.conditions_after.canary_ns is not None
    canary = make_canary(seen.conditions_after.canary_ns, runs_before=True)
    seen = agent.measure(make_task(canary=canary))
    assert_good(seen, bench)
    assert seen.sample_kind is SampleKind.TOOL_SUMMARY
    assert seen.raw_log is not None
    assert seen.conditions_before is not None
    assert seen.conditions_before.canary_ns is not None
    assert seen.worker is not None
    assert {"adb_version", "benchmark_model_sha256"} <= set(dict(seen.worker.settings))


def test_a_canary_that_is_off_before_ends_the_repeat(agent: AndroidAgent, bench: AdbBench) -> None:
    failure = failure_of(agent.measure(make_task(canary=make_canary(100, runs_before=True))))
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert failure.stage == "canary"
    assert leftovers(bench.farmed.folder) == []


@pytest.mark.parametrize(
    ("profile", "clusters", "rest_cap_mhz"),
    [
        ("oppo-r15", ((4, 5, 6, 7), (0, 1, 2, 3)), 793.0),
        ("galaxy-s9", ((4, 5, 6, 7), (0, 1, 2, 3)), 1794.0),
    ],
)
def test_a_recorded_phone_is_understood_and_measured(
    adb_server: AdbServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    profile: str,
    clusters: tuple[tuple[int, ...], ...],
    rest_cap_mhz: float,
) -> None:
    """Cores of equal clock, and caps at rest of 40 and 66 %, as real phones have them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with open_bench(adb_server, tmp_path / "phones", Path.home(), profile=profile) as bench:
        facts = probe_phone(bench.phone)
        assert tuple(cluster.cores for cluster in facts.clusters) == clusters
        agent = AndroidAgent(phone_options(bench.phone.server, bench.farmed.address))
        bench.inject(Fault.SLOW_RUN)
        seen = agent.measure(make_task())
        assert_good(seen, bench)
    assert seen.conditions_before is not None
    assert seen.conditions_after is not None
    highest_mhz = facts.clusters[0].max_mhz
    assert seen.conditions_before.clock_cap_mhz == rest_cap_mhz
    assert seen.conditions_after.clock_cap_mhz == highest_mhz


@pytest.mark.parametrize("fault", [Fault.RUNNER_CRASH, Fault.GARBAGE_OUTPUT])
def test_a_canary_that_fails_says_nothing_of_the_cell(
    agent: AndroidAgent, bench: AdbBench, fault: Fault
) -> None:
    bench.inject(fault)
    failure = failure_of(agent.measure(make_task(canary=make_canary(100, runs_before=True))))
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert failure.stage == "canary"
    assert leftovers(bench.farmed.folder) == []


def test_a_canary_that_is_off_after_keeps_what_was_measured(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    seen = agent.measure(make_task(canary=make_canary(100, runs_after=True)))
    failure = failure_of(seen)
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert seen.summary is not None
    assert seen.raw_log is not None
    assert leftovers(bench.farmed.folder) == []


def test_an_unauthorized_phone_is_no_fault_of_the_cell(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.UNAUTHORIZED)
    failure = failure_of(measure_patiently(agent, make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, False)
    assert "accept" in failure.remedy
    bench.clear(Fault.UNAUTHORIZED)
    assert_good(measure_patiently(agent, make_task()), bench)


def test_an_offline_phone_is_waited_for(agent: AndroidAgent, bench: AdbBench) -> None:
    bench.farm.inject(0, Fault.OFFLINE, duration_s=1.0)
    assert_good(measure_patiently(agent, make_task()), bench)


def test_a_phone_that_is_gone_is_lost(new_agent: NewAgent, bench: AdbBench) -> None:
    bench.phone.server.disconnect(bench.farmed.address)
    agent = new_agent(serial="127.0.0.1:9", boot_limit_s=1.0)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert failure.wait is not None
    assert failure.wait.limit_s == 1.0


@pytest.mark.parametrize(("fault", "stage"), [(Fault.DROP_PUSH, "load"), (Fault.DROP_RUN, "timed")])
def test_a_cable_pulled_in_the_middle_costs_one_attempt(
    agent: AndroidAgent, bench: AdbBench, fault: Fault, stage: str
) -> None:
    bench.inject(fault)
    failure = failure_of(measure_patiently(agent, make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert failure.stage == stage
    assert leftovers(bench.farmed.folder) == []
    assert_good(measure_patiently(agent, make_task()), bench)


def test_a_phone_that_hangs_ends_at_the_time_limit(agent: AndroidAgent, bench: AdbBench) -> None:
    assert_good(agent.measure(make_task()), bench)
    started_s = time.perf_counter()
    hang = threading.Thread(target=hang_when_it_runs, args=(bench,))
    hang.start()
    failure = failure_of(agent.measure(make_task(policy=ENDLESS, timeout_s=1.5)))
    hang.join()
    assert (failure.kind, failure.is_transient) == (ErrorKind.TIMED_OUT, True)
    assert time.perf_counter() - started_s < 15
    assert leftovers(bench.farmed.folder) == []
    assert_good(agent.measure(make_task()), bench)


def test_an_adb_server_killed_in_the_middle_is_started_again(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    server = bench.phone.server

    def kill() -> None:
        wait_until_it_runs(bench)
        command = [str(server.adb), "-P", str(server.port), "kill-server"]
        subprocess.run(command, check=True, timeout=30, capture_output=True)

    killing = threading.Thread(target=kill)
    killing.start()
    failure = failure_of(measure_patiently(agent, make_task(policy=ENDLESS)))
    killing.join()
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert failure.stage == "timed"
    assert leftovers(bench.farmed.folder) == []
    assert_good(measure_patiently(agent, make_task()), bench)


def test_a_killed_server_that_many_miss_is_started_once(bench: AdbBench) -> None:
    server = bench.phone.server
    command = [str(server.adb), "-P", str(server.port), "kill-server"]
    subprocess.run(command, check=True, timeout=30, capture_output=True)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda _: server.devices(), range(8)))) == 8


def test_a_phone_that_restarts_is_waited_for(agent: AndroidAgent, bench: AdbBench) -> None:
    bench.farm.inject(0, Fault.REBOOT, duration_s=0.5)
    assert_good(measure_patiently(agent, make_task()), bench)


def test_a_full_phone_takes_no_artifact(agent: AndroidAgent, bench: AdbBench) -> None:
    bench.inject(Fault.STORAGE_FULL)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DISK_FULL, False)
    assert leftovers(bench.farmed.folder) == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault.NO_EXIT_CODES,
        Fault.CLOCK_JUMP,
        Fault.HOSTILE_NAMES,
        Fault.NAN_SENSOR,
        Fault.HAL_NOT_READY,
        Fault.SHARED_SERIAL,
    ],
)
def test_a_strange_phone_is_measured_all_the_same(
    agent: AndroidAgent, bench: AdbBench, fault: Fault
) -> None:
    bench.inject(fault)
    assert_good(measure_patiently(agent, make_task()), bench)


def test_a_sensor_without_a_value_hides_no_other_and_no_hal_is_no_status(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    usual = agent.measure(make_task()).conditions_before
    bench.inject(Fault.NAN_SENSOR)
    broken = agent.measure(make_task()).conditions_before
    bench.clear(Fault.NAN_SENSOR)
    bench.inject(Fault.HAL_NOT_READY)
    blind = agent.measure(make_task()).conditions_before
    assert usual is not None
    assert broken is not None
    assert blind is not None
    assert broken.temp_c == usual.temp_c
    assert (usual.thermal_status, blind.thermal_status) == (0, None)


def test_the_cores_in_the_row_are_those_that_the_kernel_gave(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.SLOW_RUN)
    seen = agent.measure(make_task())
    # A virtual phone pins nothing: its programs run on all cores that this process may use.
    assert seen.worker is not None
    assert seen.worker.affinity == tuple(sorted(os.sched_getaffinity(0)))


def test_cores_that_go_offline_cost_one_attempt(agent: AndroidAgent, bench: AdbBench) -> None:
    """Hot-plugging: the kernel switches the cores off that the repeat is pinned to."""
    bench.inject(Fault.CORES_OFFLINE)
    assert probe_phone(bench.phone).offline_cores == (4, 5, 6, 7, 8)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    bench.clear(Fault.CORES_OFFLINE)
    assert probe_phone(bench.phone).offline_cores == ()
    assert_good(agent.measure(make_task()), bench)


def test_lines_of_earlier_runs_in_the_log_are_not_this_runs(
    new_agent: NewAgent, bench: AdbBench
) -> None:
    artifact = TINY_TFLITE.with_name("tiny.pte")
    execution = Execution(runtime=Runtime.EXECUTORCH, backend="xnnpack")
    task = make_task(
        artifact_path=str(artifact), artifact_sha256=file_sha256(artifact), execution=execution
    )
    log = bench.farmed.folder / ".phone/logcat"
    first = new_agent().measure(task)
    assert_good_samples(first)
    log.write_text(log.read_text() * 2)
    again = new_agent().measure(task)
    assert_good_samples(again)
    assert len(again.samples_ns) == len(first.samples_ns)
    assert first.raw_log is not None
    assert log.read_text().count("ExecuTorch") > 2, "the phone's log is kept"


def assert_good_samples(seen: Measurement) -> None:
    assert seen.status is Status.OK, seen.failure
    assert seen.samples_ns


def test_a_phone_that_denies_settings_is_measured_with_a_flag(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    assert Flag.SETTINGS_NOT_APPLIED not in agent.measure(make_task()).flags
    bench.inject(Fault.SETTINGS_DENIED)
    seen = agent.measure(make_task())
    assert_good(seen, bench)
    assert Flag.SETTINGS_NOT_APPLIED in seen.flags
    assert seen.conditions_after is not None
    assert seen.conditions_after.is_screen_on is not None


def test_a_shell_without_exit_codes_still_tells_a_crash(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.NO_EXIT_CODES)
    bench.inject(Fault.RUNNER_CRASH)
    assert failure_of(measure_patiently(agent, make_task())).kind is ErrorKind.CRASHED


def test_a_clock_that_jumps_in_the_middle_changes_no_time(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    before = agent.measure(make_task())
    bench.inject(Fault.CLOCK_JUMP)
    after = agent.measure(make_task())
    assert_good(after, bench)
    assert before.summary == after.summary


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.RUNNER_CRASH, ErrorKind.CRASHED),
        (Fault.HALF_OUTPUT, ErrorKind.BAD_OUTPUT),
        (Fault.GARBAGE_OUTPUT, ErrorKind.BAD_OUTPUT),
    ],
)
def test_a_runner_that_fails_is_a_typed_failure_with_its_output(
    agent: AndroidAgent, bench: AdbBench, fault: Fault, kind: ErrorKind
) -> None:
    bench.inject(fault)
    seen = agent.measure(make_task())
    failure = failure_of(seen)
    assert (failure.kind, failure.is_transient) == (kind, False)
    assert seen.raw_log is not None
    assert leftovers(bench.farmed.folder) == []
    assert_good(agent.measure(make_task()), bench)


def test_another_versions_format_is_read(agent: AndroidAgent, bench: AdbBench) -> None:
    bench.inject(Fault.OTHER_VERSION)
    seen = agent.measure(make_task())
    assert_good(seen, bench)
    assert seen.worker is not None
    assert dict(seen.worker.settings)["read_from"] == "text"


def test_a_phone_in_use_is_left_to_its_user(agent: AndroidAgent, bench: AdbBench) -> None:
    with phone_lease(probe_phone(bench.phone).unit_hash):
        failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert "in use" in failure.message
    assert_good(agent.measure(make_task()), bench)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.HOT, "thermal status"),
        (Fault.THROTTLED, "thermal status"),
        (Fault.BATTERY_LOW, "battery"),
        (Fault.BATTERY_SAVER, "battery saver"),
        (Fault.DOZES, "dozes"),
    ],
)
def test_an_unfit_phone_is_not_measured(
    agent: AndroidAgent, bench: AdbBench, fault: Fault, reason: str
) -> None:
    bench.inject(fault)
    seen = agent.measure(make_task())
    failure = failure_of(seen)
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert reason in failure.message
    assert seen.summary is None
    assert leftovers(bench.farmed.folder) == []


def test_a_phone_whose_caps_are_low_at_rest_is_measured(
    new_agent: NewAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.LOW_CAPS_AT_REST)
    bench.inject(Fault.SLOW_RUN)
    seen = new_agent().measure(make_task())
    assert_good(seen, bench)
    rest, load = seen.conditions_before, seen.conditions_after
    assert rest is not None
    assert load is not None
    assert rest.clock_cap_mhz < 0.85 * load.clock_cap_mhz
    bench.inject(Fault.SLOW_RUN)
    assert_good(new_agent(load_cap_mhz=load.clock_cap_mhz).measure(make_task()), bench)


def test_a_phone_that_is_slower_under_load_than_at_registration_is_not_counted(
    new_agent: NewAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.SLOW_RUN)
    seen = new_agent().measure(make_task())
    assert_good(seen, bench)
    assert seen.conditions_after is not None
    cap_mhz = seen.conditions_after.clock_cap_mhz
    bench.inject(Fault.FALLING_CAPS)
    bench.inject(Fault.SLOW_RUN)
    failure = failure_of(new_agent(load_cap_mhz=cap_mhz).measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert "at registration" in failure.message


def test_a_hot_phone_asks_for_time_before_anything_is_sent_to_it(
    new_agent: NewAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.HOT)
    bench.inject(Fault.DROP_PUSH)
    seen = new_agent(max_wait_s=20.0).measure(make_task())
    wait = failure_of(seen).wait
    assert wait is not None
    assert (wait.ask_again_s, wait.limit_s) == (0.1, 20.0)
    assert seen.conditions_before is not None
    assert not (bench.farmed.folder / FOLDER[1:]).exists()


def test_a_hot_phone_is_waited_for(new_agent: NewAgent, bench: AdbBench) -> None:
    bench.farm.inject(0, Fault.HOT, duration_s=1.0)
    assert_good(measure_when_fit(new_agent(max_wait_s=20.0), make_task(), print), bench)


def test_readings_set_by_hand_are_refused_with_the_command_that_resets_them(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    bench.phone.shell("cmd thermalservice override-status 0", timeout_s=20)
    failure = failure_of(agent.measure(make_task()))
    assert failure.kind is ErrorKind.UNFIT_CONDITIONS
    assert "thermalservice reset" in failure.remedy


def test_a_phone_that_heats_up_keeps_what_it_measured_and_is_tried_again(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    from fleetrank.device_agents.android import visit

    # The look before anything is sent, and the one before the run.
    reads = iter(["fit", None])
    real = visit.read_phone_conditions

    def read_then_heat(*arguments: object) -> object:
        seen = real(*arguments)
        if next(reads, "again") is None:
            bench.inject(Fault.THROTTLED)
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visit, "read_phone_conditions", read_then_heat)
        seen = agent.measure(make_task())
    failure = failure_of(seen)
    assert (failure.kind, failure.is_transient) == (ErrorKind.UNFIT_CONDITIONS, True)
    assert seen.summary is not None


def test_another_phone_at_the_address_is_refused(new_agent: NewAgent, bench: AdbBench) -> None:
    agent = new_agent(serial_hash="0" * 64)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, False)
    assert "not the registered phone" in failure.message
    with pytest.raises(PermanentError, match="not the registered phone"):
        agent.probe()
    assert not (bench.farmed.folder / "data/local/tmp/fleetrank").exists()


def test_a_twin_at_the_address_is_refused(new_agent: NewAgent, bench: AdbBench) -> None:
    """Equal tablets can have one serial number, model and build."""
    facts = probe_phone(bench.phone)
    known = {"identity_hash": facts.identity_hash, "unit_hash": facts.unit_hash}
    assert new_agent(**known).measure(make_task()).status is Status.OK
    android_id = bench.farmed.folder / ".phone/settings/secure/android_id"
    android_id.write_text("1234567890abcdef\n")
    assert "not the registered" in failure_of(new_agent(**known).measure(make_task())).message
    android_id.unlink()  # a phone that says nothing is not told from its twin
    assert new_agent(**known).measure(make_task()).status is Status.OK


def test_hostile_names_of_phone_and_artifact_are_never_run(
    agent: AndroidAgent, bench: AdbBench, tmp_path: Path
) -> None:
    properties = bench.farmed.folder / ".phone/properties"
    for name in ("ro.product.model", "ro.serialno", "ro.boot.serialno"):
        (properties / name).write_text(HOSTILE)
    artifact = tmp_path / f"{HOSTILE}.tflite"
    artifact.write_bytes(TINY_TFLITE.read_bytes())
    task = make_task(task_id=HOSTILE, artifact_path=str(artifact))
    assert_good(agent.measure(task), bench)
    assert not list(tmp_path.rglob("pwned*"))


def test_a_hostile_serial_is_only_text(new_agent: NewAgent, tmp_path: Path) -> None:
    agent = new_agent(serial=HOSTILE, boot_limit_s=0.5)
    failure = failure_of(agent.measure(make_task()))
    assert (failure.kind, failure.is_transient) == (ErrorKind.DEVICE_LOST, True)
    assert not list(tmp_path.rglob("pwned*"))


KILLED = """
import sys, json
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.foundation.codec import from_json
from fleetrank.device_agents.contract.task import (MeasureTask)
options, task = json.loads(sys.argv[1]), from_json(MeasureTask, sys.argv[2])
AndroidAgent(options).measure(task)
"""


def test_what_a_killed_process_left_is_cleaned_by_the_next(
    new_agent: NewAgent, bench: AdbBench
) -> None:
    task = make_task(policy=ENDLESS)
    options = phone_options(bench.phone.server, bench.farmed.address)
    command = [sys.executable, "-c", KILLED, json.dumps(options), to_json(task)]
    with subprocess.Popen(command) as process:
        wait_until_it_runs(bench)
        process.kill()
    assert process.returncode == -9
    left = leftovers(bench.farmed.folder)
    assert "data/local/tmp/fleetrank/restore.txt" in left
    assert_good(new_agent().measure(make_task()), bench)


def test_an_external_delegate_runs_from_the_programs_folder(
    new_agent: NewAgent, bench: AdbBench, tmp_path: Path
) -> None:
    folder = tmp_path / "qnn"
    folder.mkdir()
    shutil.copy(stand_in_of("benchmark_model"), folder / "benchmark_model")
    (folder / "libQnnTFLiteDelegate.so").write_bytes(b"a library")
    program = read_program("benchmark_model", folder)
    ProgramStore().add(program)
    agent = new_agent(benchmark_model=program.sha256)
    execution = make_task().execution
    task = make_task(execution=replace(execution, backend="external:QnnTFLiteDelegate"))
    seen = agent.measure(task)
    assert_good(seen, bench)
    assert (seen.backend_nodes, seen.graph_nodes) == (52, 65)
    assert seen.worker is not None
    assert dict(seen.worker.settings)["benchmark_model_sha256"] == program.sha256
    absent = make_task(execution=replace(execution, backend="external:Neuron"))
    failure = failure_of(agent.measure(absent))
    assert failure.kind is ErrorKind.UNSUPPORTED
    assert "libNeuron.so" in failure.message
