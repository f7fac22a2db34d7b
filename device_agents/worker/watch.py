"""Readings beside the runs of one repeat, except time, and the worker's side of a round."""

import time
from collections.abc import Sequence
from queue import SimpleQueue
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.contract.protocol import TURN_MARK, Turn, TurnReport
from fleetrank.device_agents.contract.runtime import DeviceModel, LoadedModel
from fleetrank.device_agents.contract.task import MeasureTask, Options
from fleetrank.device_agents.linux.conditions import Shares, read_conditions
from fleetrank.device_agents.linux.energy import EnergySource, open_rapl
from fleetrank.device_agents.linux.rails import open_rails
from fleetrank.device_agents.linux.worker_process import read_memory, reset_peak, usable_cpus
from fleetrank.foundation.codec import to_json
from fleetrank.foundation.own_process import write_all
from fleetrank.foundation.vocabulary import MemoryMetric

if TYPE_CHECKING:
    from fleetrank.device_agents.cuda.gpu_watch import GpuWatch

_COPIES = 15
"""Number of copies of the inputs to the device; their median is stable, 100 would take long."""


class HostWatch:
    """Observes this host's processor during one task; created before any runtime is imported.

    `GpuWatch` has the same members; what a processor lacks does nothing here.
    """

    memory_metric = MemoryMetric.VMHWM_GROWTH

    def __init__(self, cpus: Sequence[int] | None) -> None:
        self._cpus = cpus
        self._has_peak = False

    def conditions(self, used: Shares) -> Conditions:
        """Reads the current conditions."""
        return read_conditions(self._cpus, used)

    def warm(self, before: Conditions) -> Conditions:
        """The conditions at the start, with new values for those that matter only under load."""
        return before

    def start_memory(self) -> int | None:
        """Before loading: starts a new memory peak and returns the baseline, in bytes."""
        self._has_peak = reset_peak()
        return read_memory().resident_bytes

    def start_run_memory(self) -> None:
        """Between first inference and warm-up: starts a new peak, if the metric allows that."""
        self._has_peak = reset_peak()

    def peak_bytes(self) -> int | None:
        """The peak since its last start; `None` if the peak cannot be reset."""
        return read_memory().peak_bytes if self._has_peak else None

    def reserved_bytes(self) -> int | None:
        """Peak memory that an allocator reserved on the device, as in `Measurement`."""
        return None

    def process_bytes(self) -> int | None:
        """Device memory that the process holds, as in `Measurement`."""
        return None

    def flush(self) -> None:
        """Before each run, untimed: clears the caches that the task wants cleared."""

    def energy_source(self) -> EnergySource | None:
        """The energy counter of the device; `None` if it has none."""
        return open_rapl() or open_rails()

    def settings(self) -> Options:
        """The settings of the watch that a row must record."""
        return ()


Watch: TypeAlias = "HostWatch | GpuWatch"


def open_watch(task: MeasureTask) -> Watch:
    """The watch for a task's backend.

    Raises:
        FleetError: for a GPU backend, why the GPU cannot be used now or at all.
    """
    if task.execution.backend not in GPU_BACKENDS:
        return HostWatch(usable_cpus())
    from fleetrank.device_agents.cuda.gpu_watch import open_gpu_watch

    return open_gpu_watch(task)


class Around:
    """Clears caches before a run, and reads the device's clock after it."""

    def __init__(self, watch: Watch, model: LoadedModel) -> None:
        self._device = model if isinstance(model, DeviceModel) else None
        self.before = watch.flush
        self.device_ns: list[int | None] = []

    def after(self) -> None:
        """Reads the device's clock after a run."""
        if self._device is not None:
            self.device_ns.append(self._device.device_ns())

    def samples_ns(self) -> tuple[int, ...] | None:
        """One sample per run; `None` if any is missing."""
        known = tuple(ns for ns in self.device_ns if ns is not None)
        return known if known and len(known) == len(self.device_ns) else None


def copy_ns(model: LoadedModel) -> int | None:
    """Median time to copy the inputs to the device; `None` if they need no copy."""
    if not isinstance(model, DeviceModel):
        return None
    times = []
    for _ in range(_COPIES):
        start = time.perf_counter_ns()
        model.copy_inputs()
        times.append(time.perf_counter_ns() - start)
    return int(median(times))


class Turns:
    """Asks for turns on standard output; the answers arrive on standard input."""

    def __init__(self, result_fd: int) -> None:
        self._result_fd = result_fd
        self._answers: SimpleQueue[bytes] = SimpleQueue()

    def hear(self, received: bytes) -> None:
        """Takes what arrived on standard input; an answer is far shorter than a pipe's part."""
        for answer in received.split():
            self._answers.put(answer)

    def wait(self, report: TurnReport) -> Turn:
        """Reports the last block and sleeps until the next turn; other cells are measured now.

        Raises:
            ValueError: the answer is not a `Turn`.
        """
        write_all(self._result_fd, f"{TURN_MARK}{to_json(report)}\n".encode())
        return Turn(self._answers.get().decode())
