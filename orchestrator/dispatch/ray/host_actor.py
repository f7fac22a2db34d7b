"""What runs on each host under Ray: an async actor that answers at once, whatever is measured."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.host.user_folders import cache_folder
from fleetrank.device_agents.registry import create_agent
from fleetrank.orchestrator.dispatch.host.host_facts import (
    HostFacts,
    code_sha256,
    read_host_facts,
    seen_gpus,
    seen_phones,
)
from fleetrank.orchestrator.dispatch.host.host_files import FilePart
from fleetrank.orchestrator.dispatch.host.host_service import Answer, HostService, Order, Question
from fleetrank.orchestrator.workspace.device_spec import DeviceSpec

T = TypeVar("T")
_CALLS = 64
"""Questions, probes and deliveries at once; each waiting driver takes one."""


class HostActor:
    """A `HostService` behind Ray; its event loop never blocks.

    Plain Python; `ray_cluster` makes it an actor. What is measured survives it in the spool; what
    runs when it ends is lost, and the driver decides.
    """

    def __init__(self, host: str, folder: str | None = None) -> None:
        """Takes the host's name, and where its spool lies: the user's cache folder by default."""
        # Ray sets it to 1 for every worker of its own; ours shall find what a shell gives.
        os.environ.pop("OMP_NUM_THREADS", None)
        # Now, not when it is asked: the files may have changed by then, the loaded code has not.
        code_sha256()
        own = cache_folder() / "hosts" / host if folder is None else Path(folder)
        self._service = HostService(own)
        self._calls = ThreadPoolExecutor(max_workers=_CALLS)

    async def describe(self) -> HostFacts:
        """Says what this host is and has to do."""
        n_running, n_kept = len(self._service.running), self._service.n_kept
        return await self._call(
            lambda: read_host_facts(
                phones=seen_phones(), gpus=seen_gpus(), n_running=n_running, n_kept=n_kept
            )
        )

    async def accept(self, orders: Sequence[Order], *, has_files: bool) -> Sequence[str]:
        """See `HostService.accept`."""
        return await self._call(lambda: self._service.accept(orders, has_files=has_files))

    async def receive(self, part: FilePart) -> None:
        """See `HostService.receive`."""
        await self._call(lambda: self._service.receive(part))

    async def ask(self, question: Question) -> Answer:
        """See `HostService.ask`."""
        return await self._call(lambda: self._service.ask(question))

    async def facts(self, specs: Sequence[DeviceSpec]) -> Mapping[str, DeviceFacts]:
        """See `HostService.facts`."""
        return await self._call(lambda: self._service.facts(specs))

    async def probe(self, spec: DeviceSpec) -> DeviceFacts | Failure:
        """See `HostService.probe`."""
        return await self._call(lambda: self._service.probe(spec))

    async def why_unsupported(self, spec: DeviceSpec, execution: Execution) -> str | None:
        """See `Agent.why_unsupported`."""
        agent = create_agent(spec.kind, dict(spec.options))
        return await self._call(lambda: agent.why_unsupported(execution))

    async def interrupt(self, sweep_id: str) -> None:
        """See `HostService.interrupt`."""
        self._service.interrupt(sweep_id)

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._calls, work)
