"""How a driver calls hosts: `Reach`, and the one of this process.

The hosts of Ray are called by `orchestrator.dispatch.ray_process`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Protocol, TypeVar

from fleetrank.device_agents.hosts.host import Host

T = TypeVar("T")
LOCAL_HOST = "local"
"""The name of this host, in this process and in a Ray that is started for one sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """A host that has answered.

    Attributes:
        node_id: changes when the host has left and returned.
        has_files: whether this process runs on the same host, so that paths are the same.
        clock_ahead_s: as in `HostFacts`.
    """

    node_id: str
    has_files: bool
    clock_ahead_s: float = 0.0


class Reach(Protocol):
    """How hosts are called. Safe to use from any thread; only the controller repeats a call."""

    def hosts(self) -> Mapping[str, HostLink]:
        """The hosts that answer now, by name."""
        ...

    def call(self, host: str, method: str, *arguments: object) -> Future[Any]:
        """Calls a method of `Host`; an error is `HostDiedError` if the host answers never again."""
        ...

    def send_files(self, host: str, files: Sequence[Path]) -> Future[None]:
        """Sends files that a host lacks."""
        ...

    def restart(self, host: str, *, is_lost: bool) -> None:
        """Restarts the process of a host; one that is lost counts as away until it answers."""
        ...


class HostHere:
    """Calls one host in this process, each call in a separate thread."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def hosts(self) -> Mapping[str, HostLink]:
        """This host."""
        return {LOCAL_HOST: HostLink(node_id="", has_files=True)}

    def call(self, _host: str, method: str, *arguments: object) -> Future[Any]:
        """Calls a method of the host."""
        return in_thread(lambda: getattr(self._host, method)(*arguments))

    def send_files(self, _host: str, _files: Sequence[Path]) -> Future[None]:
        """Sends nothing, because the files are here."""
        return in_thread(lambda: None)

    def restart(self, _host: str, *, is_lost: bool) -> None:
        """Does nothing: an agent that hangs in this process ends with it."""


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Starts work in a thread that does not keep the process from ending."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except Exception as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    return answer
