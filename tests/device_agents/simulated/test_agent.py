import statistics
from pathlib import Path

import pytest

from fleetrank.device_agents.contract.task import Execution, MeasureTask, OptionValue
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.simulated.agent import SimulatedAgent
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    Flag,
    Origin,
    Precision,
    Runtime,
    Status,
    Tier,
)


def task(task_id: str = "t", **changes: object) -> MeasureTask:
    fields: dict[str, object] = {
        "task_id": task_id,
        "artifact_path": "/nowhere",
        "artifact_sha256": "",
        "execution": Execution(runtime=Runtime.ONNX, backend="cpu"),
        "macs_and_parameters": (500_000_000, 1_000_000),
    }
    return MeasureTask(**{**fields, **changes})  # type: ignore[arg-type]


def latency_ns(options: dict[str, OptionValue], asked: MeasureTask) -> float:
    return statistics.median(SimulatedAgent(options).measure(asked).samples_ns)


FAST: dict[str, OptionValue] = {"peak_gflops": 1000, "bandwidth_gbps": 1000, "overhead_us": 0}


def test_without_noise_the_latency_is_the_roofline() -> None:
    # 1 GFLOP at 1000 GFLOP/s; 4 MB at 1 GB/s; and the overhead.
    assert latency_ns(FAST, task()) == 1_000_000
    assert latency_ns({**FAST, "bandwidth_gbps": 1}, task()) == 4_000_000
    assert latency_ns({**FAST, "overhead_us": 7}, task()) == 1_007_000


def test_batch_costs_compute_and_precision_saves_memory() -> None:
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", batch=4)
    assert latency_ns(FAST, task(execution=execution)) == 4_000_000
    half = Execution(runtime=Runtime.ONNX, backend="cpu", precision=Precision.FP16)
    assert latency_ns({**FAST, "bandwidth_gbps": 1}, task(execution=half)) == 2_000_000


def test_the_same_task_gives_the_same_samples_and_another_one_others() -> None:
    noisy: dict[str, OptionValue] = {"noise": 0.05}
    one = SimulatedAgent(noisy).measure(task("a")).samples_ns
    assert SimulatedAgent(noisy).measure(task("a")).samples_ns == one
    assert SimulatedAgent(noisy).measure(task("b")).samples_ns != one
    assert SimulatedAgent({**noisy, "seed": 1}).measure(task("a")).samples_ns != one
    assert SimulatedAgent(noisy).measure(task("a", seed=1)).samples_ns != one


def test_processes_differ_by_more_than_samples_of_one() -> None:
    agent = SimulatedAgent({"noise": 0.05})
    medians = [statistics.median(agent.measure(task(str(i))).samples_ns) for i in range(60)]
    one = agent.measure(task("0")).samples_ns
    between = statistics.stdev(medians) / statistics.mean(medians)
    within = statistics.stdev(one) / statistics.mean(one)
    assert 0.035 < between < 0.065
    assert within < between / 2


def test_drift_is_flagged() -> None:
    options: dict[str, OptionValue] = {**FAST, "drift": 0.5, "noise": 0.02, "overhead_us": 200_000}
    assert Flag.DRIFT in SimulatedAgent(options).measure(task()).flags


@pytest.mark.parametrize(
    ("rate", "kind", "is_transient"),
    [
        ("crash_rate", ErrorKind.CRASHED, False),
        ("timeout_rate", ErrorKind.TIMED_OUT, False),
        ("transient_rate", ErrorKind.DEVICE_LOST, True),
    ],
)
def test_faults_come_at_their_rate(rate: str, kind: ErrorKind, is_transient: bool) -> None:
    agent = SimulatedAgent({rate: 0.3})
    seen = [agent.measure(task(str(i))) for i in range(300)]
    failures = [measurement.failure for measurement in seen if measurement.failure]
    assert 60 < len(failures) < 120
    assert {(failure.kind, failure.is_transient) for failure in failures} == {(kind, is_transient)}


def test_a_model_without_cost_is_unsupported() -> None:
    seen = SimulatedAgent({}).measure(task(macs_and_parameters=None))
    assert seen.status is Status.FAILED
    assert seen.failure is not None
    assert seen.failure.kind is ErrorKind.UNSUPPORTED


def test_it_says_that_it_is_simulated() -> None:
    facts = SimulatedAgent({"tier": "edge", "device_model": "Phone 1"}).probe()
    assert (facts.tier, facts.device_model, facts.origin) == (
        Tier.EDGE, "Phone 1", Origin.SIMULATED,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"tier": "toaster"},
        {"peak_gflops": 0},
        {"bandwidth_gbps": -1},
        {"noise": -0.1},
        {"noise": float("nan")},
        {"seed": 1.5},
        {"noise": True},
        {"crash_rate": 0.6, "timeout_rate": 0.6},
        {"drift": -1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, OptionValue]) -> None:
    with pytest.raises(PermanentError):
        SimulatedAgent(options)


def test_a_stop_ends_a_long_repeat(tmp_path: Path) -> None:
    asked = iter([False, False, True])
    seen = SimulatedAgent({"duration_s": 60}).measure(task(), lambda: next(asked))
    assert seen.failure is not None
    assert seen.failure.kind is ErrorKind.INTERRUPTED
