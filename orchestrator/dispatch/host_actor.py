"""What runs on each host under Ray: an async actor that owns the host's devices."""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from device_agents.types import DeviceFacts, Failure, InferTask, Measurement, MeasureTask
from orchestrator.dispatch.device_bench import DeviceBench, DeviceSpec

T = TypeVar("T")
_SPARE_THREADS = 4
"""For probes and verification beside one measurement per device."""


class HostActor:
    """Starts workers through the agents; its event loop never blocks, so it answers at once.

    Plain Python; `ray_executor` makes it an actor. It holds nothing that a restart would lose:
    the work in flight comes back to the driver as lost, and the driver decides.
    """

    def __init__(self, specs: tuple[DeviceSpec, ...]) -> None:
        # Ray sets it to 1 for every worker of its own; ours shall find what a shell gives.
        os.environ.pop("OMP_NUM_THREADS", None)
        self._bench = DeviceBench(specs)
        # A worker dies with the thread that started it; the pool keeps its threads to the end.
        self._pool = ThreadPoolExecutor(max_workers=len(specs) + _SPARE_THREADS)

    async def facts(self) -> Mapping[str, DeviceFacts]:
        """Probes every device of this host; one that does not answer is left out."""
        return await self._in_thread(self._bench.facts)

    async def probe(self, device: str) -> DeviceFacts | Failure:
        """Asks a device what it is."""
        return await self._in_thread(lambda: self._bench.probe(device))

    async def measure(self, device: str, task: MeasureTask) -> Measurement:
        """Measures one repeat in a worker process of its own."""
        return await self._in_thread(lambda: self._bench.measure(device, task))

    async def left_s(self, task_id: str) -> float:
        """How long a task may still take; see `DeviceBench.left_s`."""
        return self._bench.left_s(task_id)

    async def infer(self, device: str, task: InferTask) -> Failure | None:
        """Runs an artifact over stored inputs."""
        return await self._in_thread(lambda: self._bench.infer(device, task))

    async def interrupt(self) -> None:
        """Ends running measurements now; each comes back as `interrupted`."""
        self._bench.interrupt()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
