"""Work of the worker beside timed runs, for devices that have their own memory."""

import time
from statistics import median

from fleetrank.device_agents.runtimes.runner import DeviceModel, LoadedModel
from fleetrank.device_agents.worker.watch import Watch

_COPIES = 15
"""Number of copies of the inputs to the device; their median is stable, 100 would take long."""


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
