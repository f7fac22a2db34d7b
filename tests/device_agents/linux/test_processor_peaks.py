import os

import pytest

from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.linux.processor_peaks import probe_peak


@pytest.mark.thorough
@pytest.mark.slow
def test_a_probe_pins_its_child_and_restores_this_process() -> None:
    mask = os.sched_getaffinity(0)
    peak = probe_peak(sorted(mask)[:1])
    assert os.sched_getaffinity(0) == mask
    assert peak.threads == 1
    # No processor of this century computes slower than 0.1 GFLOP/s or faster than 10 TFLOP/s.
    assert 0.1 < peak.gflops < 10_000
    assert 0.05 < peak.gbps < 2_000


def test_a_cpu_that_does_not_exist_is_named_in_an_error() -> None:
    with pytest.raises(PermanentError, match="1 thread"):
        probe_peak([60_000])
