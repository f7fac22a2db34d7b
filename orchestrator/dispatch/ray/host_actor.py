"""The Ray actor of each host: asynchronous, so that it answers while a measurement runs."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.registry import create_agent
from fleetrank.foundation.files import cache_folder
from fleetrank.orchestrator.dispatch.host.host_facts import (
    HostFacts,
    code_sha256,
    read_host_facts,
    seen_devices,
)
from fleetrank.orchestrator.dispatch.host.host_files import FilePart
from fleetrank.orchestrator.dispatch.host.host_service import (
    DeviceTask,
    HostService,
    PollReply,
    PollRequest,
)
from fleetrank.orchestrator.identity.cells import DeviceSpec

T = TypeVar("T")
_CALLS = 64
"""Concurrent polls, probes and deliveries; each waiting driver uses one."""


class HostActor:
    """Makes a `HostService` available through Ray; its event loop never blocks.

    Plain Python; `ray_hosts` makes it an actor. When the actor ends, finished measurements remain
    in the spool and running tasks are lost; the driver decides whether to retry them.
    """

    def __init__(self, host: str, folder: str | None = None) -> None:
        """Takes the host's name and the spool's folder (default: the user's cache folder)."""
        # Ray sets it to 1 for its workers; our workers need the value of a normal shell.
        os.environ.pop("OMP_NUM_THREADS", None)
        # At the start: later the files can have changed, but the loaded code has not.
        code_sha256()
        own = cache_folder() / "hosts" / host if folder is None else Path(folder)
        self._service = HostService(own)
        self._calls = ThreadPoolExecutor(max_workers=_CALLS)

    async def describe(self) -> HostFacts:
        """Returns the facts of this host and the number of its tasks."""
        n_running, n_kept = len(self._service.running), self._service.n_kept
        return await self._call(
            lambda: read_host_facts(seen=seen_devices(), n_running=n_running, n_kept=n_kept)
        )

    async def accept(self, tasks: Sequence[DeviceTask], *, has_files: bool) -> Sequence[str]:
        """Starts tasks and returns the files that must be sent first."""
        return await self._call(lambda: self._service.accept(tasks, has_files=has_files))

    async def receive(self, part: FilePart) -> None:
        """Stores one part of a file that the driver sends."""
        await self._call(lambda: self._service.receive(part))

    async def poll(self, request: PollRequest) -> PollReply:
        """Deletes acknowledged measurements, waits for new ones and returns them."""
        return await self._call(lambda: self._service.poll(request))

    async def facts(self, specs: Sequence[DeviceSpec]) -> Mapping[str, DeviceFacts]:
        """Probes devices in parallel; a device that does not answer is left out."""
        return await self._call(lambda: self._service.facts(specs))

    async def probe(self, spec: DeviceSpec) -> DeviceFacts | Failure:
        """Probes one device; returns its facts or the failure."""
        return await self._call(lambda: self._service.probe(spec))

    async def why_unsupported(self, spec: DeviceSpec, execution: Execution) -> str | None:
        """Returns why a device cannot run an execution; `None` if it can."""
        agent = create_agent(spec.kind, dict(spec.options))
        return await self._call(lambda: agent.why_unsupported(execution))

    async def finish_rounds(self, sweep_id: str) -> None:
        """Ends the running rounds of a sweep after their current blocks."""
        self._service.finish_rounds(sweep_id)

    async def interrupt(self, sweep_id: str) -> None:
        """Ends the running tasks of a sweep; each returns as `interrupted`."""
        self._service.interrupt(sweep_id)

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._calls, work)
