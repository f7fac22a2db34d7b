import statistics
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest

from fleetrank.device_agents.contract.task import (
    Execution,
    MeasurePolicy,
    MeasureTask,
    OptionValue,
    TokenCost,
)
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.simulated import SimulatedAgent
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    Flag,
    Origin,
    Precision,
    Runtime,
    Status,
    Tier,
)
from fleetrank.foundation.workload import Workload


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


def _tier(tier: str, runtime: Runtime = Runtime.ONNX, macs: int = 500_000_000) -> float:
    execution = Execution(runtime=runtime, backend="cpu")
    costs = task(execution=execution, macs_and_parameters=(macs, 1_000_000))
    return latency_ns({"tier": str(tier)}, costs)


def test_a_phone_is_slower_than_a_processor_and_a_gpu_is_faster() -> None:
    assert _tier("edge") > 2 * _tier("cpu") > 10 * _tier("gpu")
    # A small network costs a GPU its launches.
    assert _tier("gpu", macs=1_000) > _tier("cpu", macs=1_000)


def test_a_stated_option_stands_before_the_tier() -> None:
    fast: dict[str, OptionValue] = {"tier": "edge", "peak_gflops": 1000, "bandwidth_gbps": 1000}
    # 1 GFLOP at 1000 GFLOP/s, and the overhead of the tier.
    assert latency_ns(fast, task()) == 1_100_000


@pytest.mark.parametrize("tier", list(Tier))
def test_two_runtimes_of_a_device_differ_by_more_than_noise(tier: Tier) -> None:
    ratio = _tier(tier, Runtime.TFLITE) / _tier(tier)
    assert abs(ratio - 1) > 0.15
    tflite = task(execution=Execution(runtime=Runtime.TFLITE, backend="xnnpack"))
    assert latency_ns({**FAST, "efficiency_tflite": 0.5}, tflite) == 2_000_000


def test_a_model_larger_than_the_memory_fails() -> None:
    seen = SimulatedAgent({"memory_bytes": 1000}).measure(task())
    assert seen.failure.kind is ErrorKind.OUT_OF_MEMORY
    assert not seen.failure.is_transient
    assert SimulatedAgent({"tier": "edge"}).probe().memory_bytes == 8 * 2**30


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


def test_a_device_slows_down_under_load_and_is_flagged() -> None:
    options: dict[str, OptionValue] = {**FAST, "heat": 0.5, "overhead_us": 199_000}
    seen = SimulatedAgent(options).measure(task())
    assert Flag.DRIFT in seen.flags
    assert seen.samples_ns[0] == 200_000_000
    # After 10 s of computing, 63 % of the growth; a fast model has not computed for so long.
    at_ns = list(accumulate(seen.samples_ns))
    hot = next(ns for ns, now_ns in zip(seen.samples_ns[1:], at_ns, strict=False) if now_ns > 1e10)
    assert hot == pytest.approx(200_000_000 * (1 + 0.5 * 0.632), rel=0.01)
    assert SimulatedAgent({**FAST, "heat": 0.5}).measure(task()).flags == ()


def test_a_long_run_and_a_sequence_of_tokens_slow_down_too() -> None:
    hot: dict[str, OptionValue] = {**FAST, "heat": 0.5, "overhead_us": 199_000}
    long = SimulatedAgent(hot).measure(task(policy=MeasurePolicy(min_time_s=60.0)))
    assert long.samples_ns[-1] == pytest.approx(1.5 * long.samples_ns[0], rel=0.01)
    execution = Execution(
        runtime=Runtime.ONNX, backend="cpu", workload=Workload.parse("generate@64+33")
    )
    asked = task(execution=execution, token_costs=(PROMPT, STEP))
    steps = SimulatedAgent(hot).measure(asked).samples_ns
    assert steps[-1] > 1.2 * steps[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "kind", "is_transient"),
    [("crash_rate", ErrorKind.CRASHED, False), ("loss_rate", ErrorKind.DEVICE_LOST, True)],
)
def test_failures_come_at_their_rate(rate: str, kind: ErrorKind, is_transient: bool) -> None:
    agent = SimulatedAgent({rate: 0.3})
    seen = [agent.measure(task(str(i))) for i in range(300)]
    failures = [measurement.failure for measurement in seen if measurement.failure]
    assert 60 < len(failures) < 120
    assert {(one.kind, one.is_transient) for one in failures} == {(kind, is_transient)}
    assert {one.origin for one in seen} == {Origin.SIMULATED}


def test_a_model_without_cost_is_unsupported() -> None:
    seen = SimulatedAgent({}).measure(task(macs_and_parameters=None))
    assert seen.status is Status.FAILED
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
        {"crash_rate": -0.6},
        {"heat": -0.1},
        {"loss_rate": -0.1},
        {"memory_bytes": 0},
        {"efficiency_onnx": 0},
    ],
)
def test_impossible_options_are_refused(options: dict[str, OptionValue]) -> None:
    with pytest.raises(PermanentError):
        SimulatedAgent(options)


@pytest.mark.slow
def test_a_stop_ends_a_long_repeat(tmp_path: Path) -> None:
    asked = iter([False, False, True])
    seen = SimulatedAgent({"duration_s": 60}).measure(task(), lambda: next(asked))
    assert seen.failure.kind is ErrorKind.INTERRUPTED


STEP = TokenCost(macs=1_000_000, moved_bytes=8_000_000, weight_bytes=7_000_000, state_bytes=500)
PROMPT = replace(STEP, macs=100_000_000)


@pytest.mark.slow
def test_a_token_costs_what_it_moves_or_what_it_computes() -> None:
    # 8 MB at 1000 GB/s; 0.2 GFLOP at 1000 GFLOP/s.
    assert latency_ns(FAST, task(token_costs=(STEP,))) == 8_000
    assert latency_ns(FAST, task(token_costs=(PROMPT,))) == 200_000


@pytest.mark.slow
def test_generate_draws_whole_sequences_of_steps_and_their_prompts_apart() -> None:
    execution = Execution(
        runtime=Runtime.ONNX, backend="cpu", workload=Workload.parse("generate@64+33")
    )
    asked = task(execution=execution, token_costs=(PROMPT, STEP))
    seen = SimulatedAgent({**FAST, "noise": 0.01}).measure(asked)
    assert seen.status is Status.OK
    assert seen.sample_kind == "per_token"
    assert seen.ttft_samples_ns is not None
    assert len(seen.samples_ns) == 32 * len(seen.ttft_samples_ns)
    assert statistics.median(seen.ttft_samples_ns) == pytest.approx(200_000, rel=0.1)
    assert statistics.median(seen.samples_ns) == pytest.approx(8_000, rel=0.1)
    assert seen.run_peak_memory_bytes == 7_000_500


def test_generating_one_token_is_refused_with_what_to_use_instead() -> None:
    execution = Execution(
        runtime=Runtime.ONNX, backend="cpu", workload=Workload.parse("generate@64+1")
    )
    seen = SimulatedAgent({}).measure(task(execution=execution, token_costs=(PROMPT, STEP)))
    assert seen.failure.kind is ErrorKind.UNSUPPORTED
    assert "prefill@64" in seen.failure.message
