"""Repeats of strange, failing and hostile phones, through the agent and the real adb."""

from pathlib import Path

import pytest
from adb_bench import (
    TINY_TFLITE,
    AdbBench,
    NewAgent,
    assert_good,
    failure_of,
    leftovers,
    make_canary,
    make_task,
    measure_patiently,
)
from daily import daily
from phone_farm.faults import Fault

from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_files import file_sha256
from fleetrank.device_agents.android.state.fitness import read_phone_conditions, to_conditions
from fleetrank.device_agents.contract.measurement import Conditions, Measurement
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Runtime, SampleKind, Status

# The newer adb alone: what differs between versions is in test_phone.py.
pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]
HOSTILE = 'a\'b "c";$(touch pwned)`touch pwned`\nd'


def test_a_repeat_has_all_that_its_row_needs(agent: AndroidAgent, bench: AdbBench) -> None:
    seen = agent.measure(make_task(canary=make_canary(100, runs_after=True)))
    assert failure_of(seen).kind is ErrorKind.UNFIT_CONDITIONS
    assert seen.summary is not None
    assert seen.conditions_after.canary_ns is not None
    canary = make_canary(seen.conditions_after.canary_ns, runs_before=True)
    seen = agent.measure(make_task(canary=canary))
    assert_good(seen, bench)
    assert seen.sample_kind is SampleKind.TOOL_SUMMARY
    assert Flag.SETTINGS_NOT_APPLIED not in seen.flags
    assert seen.raw_log is not None
    assert seen.conditions_before.canary_ns is not None
    assert {"adb_version", "benchmark_model_sha256"} <= set(dict(seen.worker.settings))


STRANGE = (
    Fault.NO_EXIT_CODES, Fault.CLOCK_JUMP, Fault.HOSTILE_NAMES, Fault.NAN_SENSOR,
    Fault.SHARED_SERIAL,
)  # fmt: skip


@pytest.mark.parametrize(
    "faults",
    [
        STRANGE,
        pytest.param((Fault.HAL_NOT_READY,), marks=pytest.mark.thorough),
        *(pytest.param((fault,), marks=pytest.mark.thorough) for fault in STRANGE),
    ],
)
def test_a_strange_phone_is_measured_all_the_same(
    agent: AndroidAgent, bench: AdbBench, faults: tuple[Fault, ...]
) -> None:
    for fault in faults:
        bench.inject(fault)
    assert_good(measure_patiently(agent, make_task()), bench)


def test_a_sensor_without_a_value_hides_no_other_and_no_hal_is_no_status(bench: AdbBench) -> None:
    def look() -> Conditions:
        return to_conditions(read_phone_conditions(bench.phone))

    usual = look()
    bench.inject(Fault.NAN_SENSOR)
    broken = look()
    bench.clear(Fault.NAN_SENSOR)
    bench.inject(Fault.HAL_NOT_READY)
    blind = look()
    assert broken.temp_c == usual.temp_c
    assert (usual.thermal_status, blind.thermal_status) == (0, None)


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_phone_that_denies_settings_is_measured_with_a_flag(
    agent: AndroidAgent, bench: AdbBench
) -> None:
    bench.inject(Fault.SETTINGS_DENIED)
    seen = agent.measure(make_task())
    assert_good(seen, bench)
    assert Flag.SETTINGS_NOT_APPLIED in seen.flags
    assert seen.conditions_after.is_screen_on is not None


@pytest.mark.parametrize(
    ("fault", "kind"),
    daily(
        [
            (Fault.RUNNER_CRASH, ErrorKind.CRASHED),
            (Fault.HALF_OUTPUT, ErrorKind.BAD_OUTPUT),
            (Fault.GARBAGE_OUTPUT, ErrorKind.BAD_OUTPUT),
        ],
        Fault.RUNNER_CRASH,
    ),
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
