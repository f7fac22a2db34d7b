"""Kernels of several runs become one entry each."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.contract.kernel_profile import Kernel
from fleetrank.device_agents.profiling.profiled_runs import kernels_of


def _call(node: str, ns: int, **changes: object) -> Kernel:
    return Kernel(**{"node": node, "module": "m", "operator": "Op", "kernel_ns": ns} | changes)


def test_the_time_of_a_kernel_is_its_median_over_runs_of_the_sum_of_its_calls() -> None:
    runs = [
        [_call("a", 1, output_bytes=4), _call("b", 5), _call("a", 2, output_bytes=4)],
        [_call("a", 10, output_bytes=4), _call("b", 6), _call("a", 20, output_bytes=4)],
        [_call("a", 3, output_bytes=4), _call("b", 7), _call("a", 3, output_bytes=4)],
    ]
    a, b = kernels_of(runs)
    assert (a.node, a.kernel_ns, a.calls, a.output_bytes) == ("a", 6, 2, 8)
    assert (b.node, b.kernel_ns, b.calls, b.output_bytes) == ("b", 6, 1, None)


def test_a_kernel_that_most_runs_lack_took_no_time() -> None:
    (a,) = [one for one in kernels_of([[_call("a", 9)], [], []]) if one.node == "a"]
    assert a.kernel_ns == 0


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=5))
def test_one_kernel_per_node_and_no_time_is_lost(times: list[list[int]]) -> None:
    runs = [[_call(str(place), ns) for place, ns in enumerate(run)] for run in times]
    found = {one.node: one.kernel_ns for one in kernels_of(runs)}
    for place in range(max(map(len, times))):
        per_run = [run[place] if place < len(run) else 0 for run in times]
        assert found[str(place)] == round(median(per_run))
