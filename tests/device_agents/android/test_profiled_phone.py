"""A task that asks where the time goes, through the agent, the real adb and a virtual phone."""

import pytest
from adb_bench import AdbBench, leftovers, make_task

from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.registry import KINDS
from fleetrank.foundation.vocabulary import Origin, Runtime, Status

# The newer adb alone, as in test_lost_phone.py.
pytestmark = [pytest.mark.adb, pytest.mark.parametrize("adb_server", ["wheel"], indirect=True)]


def profiled(agent: AndroidAgent, backend: str) -> Measurement:
    execution = Execution(runtime=Runtime.TFLITE, backend=backend, is_profiled=True)
    return agent.measure(make_task(execution=execution))


def operators_of(seen: Measurement) -> dict[str, int]:
    assert seen.status is Status.OK, seen.failure
    assert seen.origin is Origin.VIRTUAL
    assert (seen.samples_ns, seen.summary) == ((), None), "a profile is no latency"
    assert seen.profile.runs >= 1
    assert sum(one.kernel_ns for one in seen.profile.kernels) <= seen.profile.run_ns * 1.01
    return {kernel.operator: kernel.kernel_ns for kernel in seen.profile.kernels}


def test_the_files_own_nodes_and_modules_are_reported(agent: AndroidAgent, bench: AdbBench) -> None:
    seen = profiled(agent, "builtin")
    assert set(operators_of(seen)) == {"TRANSPOSE", "CONV_2D"}
    modules = [(one.operator, one.module) for one in seen.profile.kernels]
    assert modules == [("TRANSPOSE", "0"), ("CONV_2D", "0"), ("TRANSPOSE", None)]
    assert leftovers(bench.farmed.folder) == []


@pytest.mark.usefixtures("agent")
def test_what_a_phone_cannot_profile_is_known_before_it_is_asked() -> None:
    why = KINDS["android"].why_not_profiled
    assert why is not None
    for runtime, backend, words in (
        (Runtime.EXECUTORCH, "xnnpack", "event tracer"),
        (Runtime.ONNX, "cpu", "ort_runner"),
        (Runtime.TORCH, "cpu", "no program runs torch"),
        (Runtime.TFLITE, "nowhere", "no backend"),
    ):
        assert words in str(why(Execution(runtime=runtime, backend=backend)))
    assert why(make_task().execution) is None
