"""What the worker does and reads beside timed runs, for devices with a memory of their own."""

import time
from statistics import median

from fleetrank.device_agents.runtimes.runner import DeviceModel, LoadedModel
from fleetrank.device_agents.worker.watch import Watch

_COPIES = 15
"""Copies of the inputs to the device; the median of so few is steady, and 100 would cost time."""


class Around:
    """Empties caches before a run, and reads the device's clock after it."""

    def __init__(self, watch: Watch, model: LoadedModel) -> None:
        self._device = model if isinstance(model, DeviceModel) else None
        self.before = watch.flush
        self.device_ns: list[int | None] = []

    def after(self) -> None:
        """See `timing.Untimed`."""
        if self._device is not None:
            self.device_ns.append(self._device.device_ns())

    def samples_ns(self) -> tuple[int, ...] | None:
        """One per run; `None` when any is missing."""
        known = tuple(ns for ns in self.device_ns if ns is not None)
        return known if known and len(known) == len(self.device_ns) else None


def copy_ns(model: LoadedModel) -> int | None:
    """Median time of copying the inputs to the device; `None` where they need not be copied."""
    if not isinstance(model, DeviceModel):
        return None
    times = []
    for _ in range(_COPIES):
        start = time.perf_counter_ns()
        model.copy_inputs()
        times.append(time.perf_counter_ns() - start)
    return int(median(times))
