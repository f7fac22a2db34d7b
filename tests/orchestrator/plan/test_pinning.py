import pytest

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import CpuChoice, Runtime
from fleetrank.orchestrator.plan.pinning import DeviceCores, affinities, replica_cpus
from fleetrank.orchestrator.sweep.sweep_setup import plan_sweep
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, save_device
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec
from fleetrank.orchestrator.workspace.workspace import Workspace

PHONE = DeviceCores(clusters=((8,), (4, 5, 6, 7), (0, 1, 2, 3)), small=(0, 1, 2, 3))
TWO_CLUSTERS = DeviceCores(clusters=((4, 5, 6, 7), (0, 1, 2, 3)))
UNTOLD = {"serial": "1", "benchmark_model": "0" * 64}


def _spec(clusters: object = ("auto",), **keys: object) -> SweepSpec:
    return SweepSpec.model_validate(
        {"name": "s", "models": "all", "phones": {"clusters": clusters}} | keys
    )


def _cpus(spec: SweepSpec, threads: int, cores: DeviceCores) -> tuple[object, ...]:
    return tuple(cpus for _, cpus in affinities(spec, threads, cores))


@pytest.mark.parametrize(
    ("threads", "expected"),
    [(1, (8,)), (2, (4, 5, 6, 7)), (4, (4, 5, 6, 7)), (5, (8, 4, 5, 6, 7)), (6, None)],
)
def test_a_phone_is_pinned_to_the_fastest_cluster_with_a_core_per_thread(threads, expected) -> None:
    assert _cpus(_spec(), threads, PHONE) == (expected,)


def test_every_cluster_that_is_named_is_a_pinning_of_its_own() -> None:
    spec = _spec(["big", "middle", "little"])
    assert _cpus(spec, 1, PHONE) == ((8,), (4, 5, 6, 7), (0, 1, 2, 3))
    assert _cpus(spec, 1, TWO_CLUSTERS) == ((4, 5, 6, 7), (0, 1, 2, 3))


def test_free_and_lists_hold_for_phones_too() -> None:
    assert affinities(_spec(affinity="free"), 1, PHONE) == ((CpuChoice.FREE, None),)
    assert affinities(_spec(affinity=[2, 3]), 1, PHONE) == ((CpuChoice.LISTED, (2,)),)


def test_a_host_does_not_know_clusters() -> None:
    cores = DeviceCores(one_per_core=(0, 2))
    assert affinities(_spec(["big", "little"]), 2, cores) == ((CpuChoice.FIRST_CORES, (0, 2)),)


def test_what_was_asked_for_is_stated_and_what_could_not_be_pinned_is_free() -> None:
    clusters = affinities(_spec(["auto", "little"]), 6, PHONE)
    assert clusters == ((CpuChoice.FREE, None), (CpuChoice.CLUSTER, (0, 1, 2, 3)))
    one_core = DeviceCores(one_per_core=(3,))
    assert affinities(_spec(), 2, one_core) == ((CpuChoice.FREE, None),)
    assert affinities(_spec(), 2, DeviceCores()) == ((CpuChoice.FIRST_CORES, (0, 1)),)


@pytest.mark.slow
def test_a_phone_that_tells_no_clusters_is_not_pinned_to_its_slowest_cores(tmp_path) -> None:
    workspace = Workspace.init(tmp_path / "w")
    save_device(workspace, DeviceFile(name="phone", kind="android", options=UNTOLD))
    spec = SweepSpec(name="s", models=["resnet18"], runtimes=["tflite"], devices=["phone"])
    plan = plan_sweep(workspace, spec, None).plan
    assert {cell.execution.affinity for cell in plan.cells} == {None}


FOUR = DeviceCores(one_per_core=(0, 2, 4, 6))


@pytest.mark.parametrize(
    ("n", "threads", "cpus"),
    [
        (1, 1, ((0,),)),
        (4, 1, ((0,), (2,), (4,), (6,))),
        (2, 2, ((0, 2), (4, 6))),
        (3, 2, ((0, 2, 4, 6),) * 3),
        (5, 1, ((0, 2, 4, 6),) * 5),
    ],
)
def test_processes_of_a_set_have_their_own_cores_or_share_all(
    n: int, threads: int, cpus: tuple[tuple[int, ...], ...]
) -> None:
    spec = _spec()
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", threads=threads, affinity=(0,))
    assert replica_cpus(spec, execution, n, FOUR) == cpus


def test_processes_of_a_set_are_not_pinned_where_one_is_not() -> None:
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", threads=1, affinity=None)
    assert replica_cpus(_spec(affinity="free"), execution, 2, FOUR) is None
    gpu = DeviceCores(one_per_core=())
    assert replica_cpus(_spec(), execution, 2, gpu) is None
    pinned = Execution(runtime=Runtime.ONNX, backend="cpu", threads=1, affinity=(5,))
    listed = _spec(affinity=[5, 7, 9], threads=[1])
    assert replica_cpus(listed, pinned, 3, FOUR) == ((5,), (7,), (9,))
    assert replica_cpus(listed, pinned, 4, FOUR) == ((5, 7, 9),) * 4
    assert replica_cpus(_spec(), pinned, 2, PHONE) == ((8,), (4,)), "a board's fastest cores"
    assert replica_cpus(_spec(), pinned, 2, DeviceCores()) is None, "its cores are not known"
