import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.linux.cores import cpus_one_per_core, order_by_core
from fleetrank.device_agents.linux.cpu_facts import parse_cpu_model, parse_is_virtual, read_facts
from fleetrank.foundation.cpus import parse_cpu_list
from fleetrank.foundation.vocabulary import Mode, Runtime
from tests.device_agents.conftest import plain_task

ONNX = Execution(runtime=Runtime.ONNX, backend="cpu")


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("5", (5,)),
        ("", ()),
        ("a-b,1", (1,)),
        ("3-1", ()),
        ("0-99999999999", ()),
    ],
)
def test_a_list_of_cpus_is_read(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus


def test_one_hyperthread_of_each_core_comes_first() -> None:
    siblings = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    assert order_by_core(siblings, {0, 1, 2, 3}) == ((0, 2), (1, 3))
    assert order_by_core(siblings, {1, 2, 3}) == ((1, 2), (3,))
    assert order_by_core({}, {1, 0}) == ((0, 1), ())


def test_cpus_are_ascending_where_the_system_tells_nothing(tmp_path: Path) -> None:
    assert cpus_one_per_core(tmp_path) == tuple(sorted(os.sched_getaffinity(0)))


def test_a_task_without_an_affinity_is_left_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[MeasureTask] = []
    run = "fleetrank.device_agents.cpu.measure_in_workers"
    monkeypatch.setattr(run, lambda task, _stop, **_: asked.append(task))
    task = plain_task(execution=ONNX)
    CpuAgent({}).measure(task)
    assert [one.execution for one in asked] == [ONNX]


def test_cpuinfo_of_x86_and_arm() -> None:
    x86 = "model name\t: AMD EPYC 7B13\nflags\t\t: fpu hypervisor sse\n"
    arm = "processor\t: 0\nFeatures\t: fp asimd\n"
    assert (parse_cpu_model(x86), parse_is_virtual(x86)) == ("AMD EPYC 7B13", True)
    assert parse_is_virtual(x86.replace("hypervisor", "")) is False
    assert (parse_cpu_model(arm), parse_is_virtual(arm)) == (None, None)


def test_absent_facts_are_none(tmp_path: Path) -> None:
    facts = read_facts(tmp_path)
    assert facts.device_model
    assert (facts.cpu_model, facts.physical_cores, facts.governor) == (None, None, None)
    assert facts.is_virtual_machine is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"backend": "cuda"}, "cuda"),
        ({"mode": Mode.COMPILE}, "compile"),
        ({"options": (("colour", 1),)}, "colour"),
        ({"affinity": (4095,)}, "4095"),
        ({"threads": 4096}, "4096"),
        ({"batch": 0}, "batch"),
    ],
)
def test_what_the_host_or_runtime_lacks_is_named(changes: dict[str, object], named: str) -> None:
    reason = CpuAgent({}).why_unsupported(replace(ONNX, **changes))  # type: ignore[arg-type]
    assert reason is not None
    assert named in reason


def test_a_cpu_device_has_no_options() -> None:
    with pytest.raises(PermanentError, match="pin"):
        CpuAgent({"pin": True})
