"""Options of a simulated device, checked by name, type and range."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetrank.device_agents.contract.agent_options import read_fields
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.vocabulary import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """The properties of a simulated device.

    Attributes:
        noise: relative sigma between processes; samples of one process have a fifth of it.
        drift: relative growth of the latency from the first to the last sample.
        crash_rate: share of tasks that end with a crash. The rates of timeouts and of transient
            losses have the same meaning.
        duration_s: real time a repeat takes.
    """

    tier: str = "cpu"
    peak_gflops: float = 100.0
    bandwidth_gbps: float = 20.0
    overhead_us: float = 50.0
    noise: float = 0.0
    drift: float = 0.0
    seed: int = 0
    device_model: str = "simulated"
    crash_rate: float = 0.0
    timeout_rate: float = 0.0
    transient_rate: float = 0.0
    duration_s: float = 0.0


_RATES = ("crash_rate", "timeout_rate", "transient_rate")
_POSITIVE = ("peak_gflops", "bandwidth_gbps")
_NOT_NEGATIVE = ("overhead_us", "noise", "seed", "duration_s", *_RATES)


def read_options(options: Mapping[str, OptionValue]) -> SimulatedOptions:
    """Checks the options of a device file.

    Raises:
        PermanentError: an unknown name, a wrong type, or a value out of range.
    """
    read = read_fields(SimulatedOptions, "simulated", options)
    _check_ranges(read)
    return read


def _check_ranges(read: SimulatedOptions) -> None:
    if read.tier not in list(Tier):
        raise PermanentError(f"unknown tier {read.tier!r}", f"use one of: {', '.join(Tier)}")
    for name in _POSITIVE:
        if not getattr(read, name) > 0:
            raise PermanentError(f"option {name} is {getattr(read, name)}", "it must be above 0")
    for name in _NOT_NEGATIVE:
        if not getattr(read, name) >= 0:
            raise PermanentError(f"option {name} is {getattr(read, name)}", "it must be at least 0")
    if not read.drift > -1:
        raise PermanentError(f"option drift is {read.drift}", "it must be above -1")
    if sum(getattr(read, name) for name in _RATES) > 1:
        raise PermanentError("fault rates must add up to at most 1", "lower the rates")
