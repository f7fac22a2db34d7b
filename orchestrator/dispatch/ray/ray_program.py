"""The process that talks to Ray; `ray_process` starts it as a module, and sends it calls.

Its arguments are two descriptors, of the line to its parent and of the file for the output of
native code, and the level of the log. It ends when the line ends.
"""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from operator import attrgetter

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.dispatch.ray.local_ray import local_ray
from fleetrank.orchestrator.dispatch.ray.ray_cluster import cluster_ray
from fleetrank.orchestrator.dispatch.ray.ray_executor import PlacedDevice, RayExecutor
from fleetrank.orchestrator.dispatch.ray.ray_hosts import Joined, RayHosts
from fleetrank.orchestrator.identity.cells import DeviceSpec

_BESIDE = {"executor.probe"}
"""Calls that block for long and are safe on any thread; the others keep their order."""


class _Program:
    """What the parent can call, by name; `executor.` before a name means that of the sweep."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._hosts: RayHosts
        self.executor: RayExecutor

    def start(self, spool: str) -> Joined:
        """Starts a Ray for one sweep."""
        self._opened.enter_context(local_ray())
        return self._join(spool, "")

    def connect(self, address: str) -> Joined:
        """Connects to a cluster."""
        return self._join(None, self._opened.enter_context(cluster_ray(address)))

    def why_unsupported(self, host: str, device: DeviceSpec, execution: Execution) -> str | None:
        return self._hosts.why_unsupported(host, device, execution)

    def open(self, sweep_id: str, devices: Sequence[PlacedDevice], host_timeout_s: float) -> None:
        """Enters the executor of a sweep."""
        self.executor = RayExecutor(
            sweep_id, devices, self._hosts, host_timeout_s=host_timeout_s
        ).__enter__()

    def leave(self) -> None:
        """Leaves Ray; ends one that `start` started."""
        self._opened.close()

    def _join(self, spool: str | None, dashboard: str) -> Joined:
        self._hosts = self._opened.enter_context(RayHosts(spool))
        facts = {name: handle.facts for name, handle in self._hosts.settle().items()}
        here, problems = self._hosts.here, self._hosts.problems
        return Joined(here=here, hosts=facts, problems=problems, dashboard=dashboard)


class _Answers:
    """Carries out messages of calls, and answers each with its number and the last result."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self._sending = threading.Lock()
        self._program = _Program()

    def carry_out(self, number: int, calls: Sequence[tuple[str, *tuple[object, ...]]]) -> None:
        result, failure = None, None
        try:
            for name, *arguments in calls:
                result = attrgetter(name)(self._program)(*arguments)
        except Exception as error:
            # An error of Ray can only be read where Ray is loaded.
            is_ours = isinstance(error, FleetError)
            failure = error if is_ours else RuntimeError(f"{type(error).__name__}: {error}")
            failure.add_note(traceback.format_exc())
        with self._sending:
            self._line.send((number, result, failure))


def _keep_native_output(file: int) -> None:
    """Sends what native code writes to this file; the log stays on standard error."""
    shown = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    logging.basicConfig(
        level=int(sys.argv[3]), stream=shown, format="%(levelname)s %(name)s: %(message)s"
    )
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def main() -> None:
    """Carries out calls until the line ends."""
    os.set_inheritable(int(sys.argv[1]), False)
    line = Connection(int(sys.argv[1]))
    _keep_native_output(int(sys.argv[2]))
    answers = _Answers(line)
    while True:
        try:
            number, calls = line.recv()
        except EOFError:
            os._exit(0)
        if calls[0][0] in _BESIDE:
            threading.Thread(target=answers.carry_out, args=(number, calls), daemon=True).start()
        else:
            answers.carry_out(number, calls)


if __name__ == "__main__":
    main()
