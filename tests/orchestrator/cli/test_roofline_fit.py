"""The fit of a roofline, against the simulator and against what cannot be known."""

import numpy as np
import pytest

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.simulated import capacity_of, latency_ns, read_options
from fleetrank.foundation.vocabulary import Runtime
from fleetrank.orchestrator.cli.simulated_twin import fit_roofline

MACS = np.array([3.5e8, 8.2e8, 3.0e8, 2.2e8, 1.8e9, 4.1e9, 1.5e10, 4.0e8, 1.3e9, 4.6e9])
PARAMETERS = np.array([1.2e6, 1.2e6, 3.5e6, 5.4e6, 1.2e7, 2.6e7, 1.4e8, 5.3e6, 5.7e6, 2.8e7])
RUNTIMES = (Runtime.ONNX, Runtime.TFLITE)


def _measured(**options: float) -> tuple[np.ndarray, np.ndarray]:
    """Latencies and runtime numbers of ten networks on a simulated device."""
    capacity = capacity_of(read_options(options))
    pairs = [(n, cell) for n in range(len(RUNTIMES)) for cell in zip(MACS, PARAMETERS, strict=True)]
    times = [
        latency_ns(capacity, int(macs), int(parameters), Execution(runtime=RUNTIMES[n], backend=""))
        for n, (macs, parameters) in pairs
    ]
    return np.array(times), np.array([n for n, _ in pairs])


def _fit(times: np.ndarray, numbers: np.ndarray):
    return fit_roofline(np.tile(2 * MACS, 2), np.tile(4 * PARAMETERS, 2), times, numbers)


TRUE = {"peak_gflops": 40.0, "bandwidth_gbps": 1.5, "overhead_us": 900.0}


@pytest.mark.slow
def test_it_finds_what_the_simulator_was_given() -> None:
    found = _fit(*_measured(**TRUE, efficiency_tflite=1.3))
    assert found.peak_gflops == pytest.approx(40, rel=1e-3)
    assert found.is_bandwidth_known
    assert found.bandwidth_gbps == pytest.approx(1.5, rel=1e-3)
    assert found.overhead_us == pytest.approx(900, rel=1e-2)
    assert found.efficiency == pytest.approx([1, 1.3], rel=1e-3)
    assert found.errors.max() < 1e-3


@pytest.mark.slow
def test_noise_and_one_slow_model_move_it_little() -> None:
    times, numbers = _measured(**TRUE, efficiency_tflite=1.3)
    noisy = times * np.random.default_rng(1).lognormal(0, 0.05, times.size)
    noisy[3] *= 6
    found = _fit(noisy, numbers)
    assert found.peak_gflops == pytest.approx(40, rel=0.15)
    assert found.efficiency[1] == pytest.approx(1.3, rel=0.1)
    assert np.median(found.errors) < 0.08
    assert found.errors.max() > 0.7


@pytest.mark.slow
def test_of_a_bandwidth_that_limits_no_model_only_a_bound_is_known() -> None:
    found = _fit(*_measured(**TRUE | {"bandwidth_gbps": 1000.0}))
    assert not found.is_bandwidth_known
    # VGG reads the most bytes for its operations.
    assert found.bandwidth_gbps == pytest.approx(40 * np.max(2 * PARAMETERS / MACS), rel=0.05)
    assert found.errors.max() < 0.01


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_what_cannot_be_a_latency_is_refused(bad: float) -> None:
    times, numbers = _measured(**TRUE)
    times[0] = bad
    with pytest.raises(ValueError, match="above 0"):
        _fit(times, numbers)


def test_few_cells_are_refused() -> None:
    four = np.arange(1.0, 5.0)
    with pytest.raises(ValueError, match="5 cells"):
        fit_roofline(four, four, four, np.zeros(4, dtype=np.int64))
