"""How long must a very fast model be watched? `python benchmarks/stop_rule.py [PROCESSES]`.

Each fresh process times one model back to back for 2 s. Every rule is then applied to the start of
the same samples, so the rules are paired: they meet the same processes and the same states of the
host. Printed for each model and rule: the time that it observes (median over processes), how far
its median is from the median of the whole 2 s of the same process (median and 95th percentile over
processes), and the coefficient of variation of its medians between processes.
"""

import hashlib
import sys
import tempfile
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np

from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.linux.cores import cpus_one_per_core
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.device_agents.timing import HalfWidthRule
from fleetrank.foundation.vocabulary import Runtime

WHOLE_S = 2.0
WIDTHS = (4, 64, 512)
"""Of one layer: about 5 us, 10 us and 100 us."""
RULES = {
    f"{seconds:g} s": MeasurePolicy(min_observed_s=seconds)
    for seconds in (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
}


def main() -> None:
    """Measures and prints; models take turns, so that a state of the host meets all of them."""
    n_processes = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as folder:
        tasks = [task_of(Path(folder), width) for width in WIDTHS]
        traces = [[measured(task) for task in tasks] for _ in range(n_processes)]
    for number, width in enumerate(WIDTHS):
        report(f"layer of {width}", [one[number] for one in traces])


def task_of(folder: Path, width: int) -> MeasureTask:
    """One dense layer in ONNX Runtime, on one core."""
    import onnx
    from onnx import helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((width, width), dtype=np.float32)
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, width]) for name in "xy"
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "layer", [x], [y],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    path = folder / f"{width}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              str(path))  # fmt: skip
    return MeasureTask(
        task_id=path.stem,
        artifact_path=str(path),
        artifact_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        execution=Execution(runtime=Runtime.ONNX, backend="cpu", affinity=cpus_one_per_core()[:1]),
        policy=MeasurePolicy(min_time_s=WHOLE_S, energy_s=0.0),
        is_trusted=True,
    )


def measured(task: MeasureTask) -> tuple[int, ...]:
    """All samples of one fresh process."""
    seen = measure_in_worker(task)
    if seen.failure is not None:
        raise SystemExit(str(seen.failure))
    return seen.samples_ns


def seen_by(policy: MeasurePolicy, samples: Sequence[int]) -> Sequence[int]:
    """The first samples, up to where the rule ends the runs."""
    points = [n for n in HalfWidthRule(policy=policy).check_points() if n < len(samples)]
    is_enough = HalfWidthRule(policy=policy).is_enough
    too_few = len(list(takewhile(lambda n: not is_enough(samples[:n]), points)))
    return samples[: [*points, len(samples)][too_few]]


def report(name: str, traces: Sequence[tuple[int, ...]]) -> None:
    """One line for each rule."""
    whole = np.array([np.median(samples) for samples in traces])
    print(
        f"{name}: {np.median(whole) / 1e3:.1f} us, {len(traces)} processes of {WHOLE_S:g} s, CV "
        f"{whole.std(ddof=1) / whole.mean():.2%}"
    )
    for rule, policy in RULES.items():
        parts = [seen_by(policy, samples) for samples in traces]
        medians = np.array([np.median(part) for part in parts])
        errors = np.abs(medians / whole - 1)
        print(
            f"  {rule:8} observes {np.median([sum(part) for part in parts]) / 1e9:7.4f} s, error "
            f"{np.median(errors):6.2%} (median), {np.quantile(errors, 0.95):6.2%} (95th), CV "
            f"{medians.std(ddof=1) / medians.mean():6.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
