import pytest

from fleetrank.orchestrator.plan.pinning import DeviceCores, affinities
from fleetrank.orchestrator.sweep.sweep_setup import plan_sweep
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, save_device
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace

PHONE = DeviceCores(clusters=((8,), (4, 5, 6, 7), (0, 1, 2, 3)))
TWO_CLUSTERS = DeviceCores(clusters=((4, 5, 6, 7), (0, 1, 2, 3)))
UNTOLD = {"serial": "1", "benchmark_model": "0" * 64}


def _spec(clusters: object = ("auto",), **keys: object) -> SweepSpec:
    return SweepSpec.model_validate(
        {"name": "s", "models": "all", "phones": {"clusters": clusters}} | keys
    )


@pytest.mark.parametrize(
    ("threads", "expected"), [(1, (8,)), (2, (4, 5, 6, 7)), (4, (4, 5, 6, 7)), (5, None)]
)
def test_a_phone_is_pinned_to_the_fastest_cluster_with_a_core_per_thread(threads, expected) -> None:
    assert affinities(_spec(), threads, PHONE) == (expected,)


def test_every_cluster_that_is_named_is_a_pinning_of_its_own() -> None:
    spec = _spec(["big", "middle", "little"])
    assert affinities(spec, 1, PHONE) == ((8,), (4, 5, 6, 7), (0, 1, 2, 3))
    assert affinities(spec, 1, TWO_CLUSTERS) == ((4, 5, 6, 7), (0, 1, 2, 3))


def test_free_and_lists_hold_for_phones_too() -> None:
    assert affinities(_spec(affinity="free"), 1, PHONE) == (None,)
    assert affinities(_spec(affinity=[2, 3]), 1, PHONE) == ((2,),)


def test_a_host_does_not_know_clusters() -> None:
    cores = DeviceCores(one_per_core=(0, 2))
    assert affinities(_spec(["big", "little"]), 2, cores) == ((0, 2),)


def test_a_phone_that_tells_no_clusters_is_not_pinned_to_its_slowest_cores(tmp_path) -> None:
    workspace = Workspace.init(tmp_path / "w")
    save_device(workspace, DeviceFile(name="phone", kind="android", options=UNTOLD))
    spec = SweepSpec(name="s", models=["resnet18"], runtimes=["tflite"], devices=["phone"])
    plan = plan_sweep(workspace, spec, None).plan
    assert {cell.execution.affinity for cell in plan.cells} == {None}
