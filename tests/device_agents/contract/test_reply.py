"""Replies with values that no measurement gives are refused, and their values are named."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from fleetrank.device_agents.contract.measurement import (
    Block,
    Conditions,
    Energy,
    Failure,
    Measurement,
    WorkerFacts,
)
from fleetrank.device_agents.contract.protocol import TurnReport
from fleetrank.device_agents.contract.reply import read_reply, read_turn_report
from fleetrank.device_agents.contract.task import RepeatLimits
from fleetrank.foundation.codec import CodecError, to_json, to_plain
from fleetrank.foundation.vocabulary import EnergyMethod, ErrorKind, Origin, Status
from tests.device_agents.conftest import plain_task

TASK = plain_task(limits=RepeatLimits(timeout_s=10.0))
ENERGY = Energy(
    method=EnergyMethod.RAPL_COUNTER, per_inference_mj=1.0, above_idle_mj=-0.1,
    idle_power_mw=2.0, window_ns=5, runs=1, counter_steps=3,
)  # fmt: skip
GOOD = Measurement(
    task_id="t",
    status=Status.OK,
    origin=Origin.MEASURED,
    samples_ns=(5, 6, 7),
    load_ns=0,
    blocks=(Block(start_ns=1, samples=3, left_out_ns=(9,)),),
    conditions_before=Conditions(temp_c=-20.5, busy_share=1.0, battery_percent=0.0),
    worker=WorkerFacts(niceness=-5, settings=(("depth", -1),), affinity=(0, 1)),
    energy=ENERGY,
)
FAILURE = Failure(
    kind=ErrorKind.CRASHED, message="m", remedy="r", is_transient=False, exit_code=-11
)


def of(**changes: object) -> Measurement:
    return replace(GOOD, **changes)  # type: ignore[arg-type]


def test_values_that_can_be_are_read() -> None:
    for found in (GOOD, of(status=Status.FAILED, failure=FAILURE, samples_ns=(), blocks=())):
        assert read_reply(to_plain(found), TASK) == found


def test_a_reply_is_measured_whatever_it_states() -> None:
    assert read_reply(to_plain(of(origin=Origin.IMPORTED)), TASK) == GOOD


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (of(samples_ns=(5, -6, 7)), r"Measurement\.samples_ns is -6, and must be from 1"),
        (of(samples_ns=(5, 0, 7)), r"Measurement\.samples_ns is 0"),
        (of(samples_ns=(5, 2**62 + 1, 7)), r"Measurement\.samples_ns is 4"),
        (of(load_ns=-1), r"Measurement\.load_ns"),
        (of(run_peak_memory_bytes=-1), r"run_peak_memory_bytes"),
        (of(input_copy_ns=2**63 - 1), r"input_copy_ns"),
        (of(blocks=(Block(start_ns=1, samples=0, left_out_ns=()),)), r"blocks\.samples is 0"),
        (of(blocks=(Block(start_ns=1, samples=2, left_out_ns=()),)), "2 samples, and it has 3"),
        (of(blocks=(Block(start_ns=-1, samples=3, left_out_ns=()),)), r"blocks\.start_ns"),
        (of(conditions_after=Conditions(temp_c=-300.0)), r"conditions_after\.temp_c"),
        (of(conditions_after=Conditions(busy_share=1.5)), r"busy_share is 1\.5.* from 0 to 1"),
        (of(conditions_after=Conditions(battery_percent=101.0)), "battery_percent"),
        (of(conditions_after=Conditions(clock_mhz=1e300)), "clock_mhz"),
        (of(energy=replace(ENERGY, per_inference_mj=-1.0)), "per_inference_mj"),
        (of(worker=WorkerFacts(affinity=(0, -1))), r"worker\.affinity"),
        (of(status=Status.FAILED), "status is failed"),
        (of(failure=FAILURE), "status is ok"),
        (of(samples_ns=(), blocks=()), "has no result"),
        (of(samples_ns=(5, 6, 12 * 10**9)), "sum up to 12 s, and it was given 10 s"),
        (of(task_id="other"), "it answers task 'other'"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(found: Measurement, named: str) -> None:
    with pytest.raises(CodecError, match=named):
        read_reply(to_plain(found), TASK)


BLOCK = Block(start_ns=1, samples=2, left_out_ns=())


def test_the_report_of_a_turn_is_read() -> None:
    for report in (TurnReport(), TurnReport(block=BLOCK, samples_ns=(5, 6))):
        assert read_turn_report(to_json(report)) == report


@pytest.mark.parametrize(
    "report",
    [
        TurnReport(block=BLOCK, samples_ns=(5, -6)),
        TurnReport(block=BLOCK, samples_ns=(5,)),
        TurnReport(samples_ns=(5,)),
        TurnReport(block=replace(BLOCK, samples=0)),
    ],
)
def test_the_report_of_a_turn_has_as_many_samples_as_its_block(report: TurnReport) -> None:
    with pytest.raises(CodecError):
        read_turn_report(to_json(report))


@pytest.mark.parametrize(
    "forge",
    [
        lambda text: text.replace("[5,6,7]", f"[{10**400}]"),
        lambda text: text.replace('"samples":3', '"samples":0'),
        lambda text: text.replace('["depth",-1]', '["depth",1e999]'),
    ],
    ids=["a sample of 400 digits", "a block of no samples", "an infinite setting"],
)
def test_a_forged_reply_is_refused(forge: Callable[[str], str]) -> None:
    text = to_json(GOOD)
    assert forge(text) != text
    with pytest.raises(CodecError):
        read_reply(json.loads(forge(text)), TASK)
