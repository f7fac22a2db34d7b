"""What is read beside the runs of one repeat, apart from time: the contract, and the host's own."""

from collections.abc import Sequence
from typing import Protocol

from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.contract.task import MeasureTask, Options
from fleetrank.device_agents.contract.vocabulary import MemoryMetric
from fleetrank.device_agents.host.conditions import Shares, read_conditions
from fleetrank.device_agents.host.energy import EnergySource
from fleetrank.device_agents.host.isolation import usable_cpus
from fleetrank.device_agents.host.memory import read_memory, reset_peak
from fleetrank.device_agents.host.rapl import open_rapl
from fleetrank.device_agents.runtimes.gpu_backends import GPU_BACKENDS


class Watch(Protocol):
    """Looks at whatever executes one task; made before any runtime is imported."""

    memory_metric: MemoryMetric

    def conditions(self, used: Shares) -> Conditions:
        """The state now."""
        ...

    def warm(self, before: Conditions) -> Conditions:
        """What was seen at the start, with what only shows under load as it is now."""
        ...

    def start_memory(self) -> int | None:
        """Before loading: begins a new peak and gives the baseline, in bytes."""
        ...

    def start_run_memory(self) -> None:
        """Between first inference and warm-up: begins a new peak, where the metric allows that."""
        ...

    def peak_bytes(self) -> int | None:
        """The peak since the last beginning."""
        ...

    def reserved_bytes(self) -> int | None:
        """See `Measurement.reserved_memory_bytes`."""
        ...

    def process_bytes(self) -> int | None:
        """See `Measurement.process_memory_bytes`."""
        ...

    def flush(self) -> None:
        """Before each run, untimed: empties the caches the task wants empty."""
        ...

    def energy_source(self) -> EnergySource | None:
        """What counts the energy of the device; `None` where nothing does."""
        ...

    def settings(self) -> Options:
        """What of this a row must state."""
        ...


class HostWatch:
    """The `Watch` of this host's processor."""

    memory_metric = MemoryMetric.VMHWM_GROWTH

    def __init__(self, cpus: Sequence[int] | None) -> None:
        self._cpus = cpus
        self._has_peak = False

    def conditions(self, used: Shares) -> Conditions:
        """See `Watch`."""
        return read_conditions(self._cpus, used)

    def warm(self, before: Conditions) -> Conditions:
        """See `Watch`; a processor shows itself at any time."""
        return before

    def start_memory(self) -> int | None:
        """See `Watch`."""
        self._has_peak = reset_peak()
        return read_memory().resident_bytes

    def start_run_memory(self) -> None:
        """See `Watch`."""
        self._has_peak = reset_peak()

    def peak_bytes(self) -> int | None:
        """See `Watch`; `None` where the peak cannot be reset."""
        return read_memory().peak_bytes if self._has_peak else None

    def reserved_bytes(self) -> int | None:
        """See `Watch`."""
        return None

    def process_bytes(self) -> int | None:
        """See `Watch`."""
        return None

    def flush(self) -> None:
        """See `Watch`; nothing is asked of a processor."""

    def energy_source(self) -> EnergySource | None:
        """See `Watch`."""
        return open_rapl()

    def settings(self) -> Options:
        """See `Watch`."""
        return ()


def open_watch(task: MeasureTask) -> Watch:
    """The watch for a task's backend.

    Raises:
        AgentError: of a GPU backend, why the GPU cannot be used now or at all.
    """
    if task.execution.backend not in GPU_BACKENDS:
        return HostWatch(usable_cpus())
    from fleetrank.device_agents.cuda.gpu_watch import open_gpu_watch

    return open_gpu_watch(task)
