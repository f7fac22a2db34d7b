"""A sweep with `min_time_s`: what its plan refuses, and how long it takes."""

import pytest
from pydantic import ValidationError
from wording import has

from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_cards
from fleetrank.orchestrator.identity import DevicePlace, Plan
from fleetrank.orchestrator.plan.estimate import measuring_s
from fleetrank.orchestrator.plan.plan import make_plan, select_models
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

DEVICES = {
    "box": DeviceFile(name="box", kind="cpu"), "sim": DeviceFile(name="sim", kind="simulated")
}  # fmt: skip


def _spec(**keys: object) -> SweepSpec:
    usual = {"name": "s", "devices": "box", "runtimes": "onnx"}
    return SweepSpec.model_validate(usual | keys)


def _plan(**keys: object) -> Plan:
    spec, known = _spec(**keys), dict(load_cards(None).good)
    return make_plan(spec, [resolve(one) for one in select_models(spec, known)], DEVICES)


LARGE = {"models": "smollm-135m", "workloads": "prefill@512", "batch": [8, 32]}


def test_an_inference_longer_than_the_time_is_skipped_with_the_batch_that_fits() -> None:
    plan = _plan(**LARGE, measure={"min_time_s": 20.0})
    assert [cell.execution.batch for cell in plan.cells] == [8]
    (skipped,) = plan.skipped
    # 2.0e12 MACs at 30e9 a second: 68 s; half of the batch takes half of it.
    assert has(skipped.reason, "min_time_s", "20", "batch", "8")


def test_without_min_time_s_nothing_is_refused() -> None:
    assert len(_plan(**LARGE).cells) == 2


def test_no_batch_fits_a_very_short_time() -> None:
    plan = _plan(**LARGE, measure={"min_time_s": 0.5})
    assert all(has(one.reason, "no smaller batch", "min_time_s") for one in plan.skipped)
    assert not plan.cells


def test_other_devices_than_cpus_are_not_judged_by_the_speed_of_a_core() -> None:
    assert len(_plan(**LARGE, devices="sim", measure={"min_time_s": 0.5}).cells) == 2


def test_generate_is_skipped() -> None:
    plan = _plan(
        models="stories260k", workloads=["generate@16+16", "decode@32"],
        measure={"min_time_s": 5.0},
    )  # fmt: skip
    assert [str(cell.execution.workload) for cell in plan.cells] == ["decode@32"]
    assert has(plan.skipped[0].reason, "prefill", "decode", "generate")


def test_the_estimate_counts_the_whole_time_also_of_a_known_cell() -> None:
    plan = _plan(models="resnet18", repeats=1, measure={"min_time_s": 60.0})
    places = {"box": DevicePlace(device="box", host="h", needs_quiet=True)}
    known = {plan.cells[0].cell_key: 3.0}
    assert 60 < (measuring_s(plan, known, places) or 0) < 75


def test_a_limit_that_ends_such_runs_is_refused() -> None:
    with pytest.raises(ValidationError) as raised:
        _spec(models="resnet18", measure={"min_time_s": 60.0}, limits={"timeout_s": 65.0})
    assert has(str(raised.value), "timeout_s", "70")
