"""The available hosts of a Ray cluster, watched in the background, and calls of them.

A host is a node with the label `fleetrank-host=NAME`. Its actor is made when the host is first
seen, and is found by name later. The actor outlives drivers; Ray restarts it when it dies.
"""

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from fleetrank.device_agents.hosts.facts import HostFacts, code_sha256
from fleetrank.device_agents.hosts.files import file_parts
from fleetrank.device_agents.hosts.host import Host
from fleetrank.device_agents.hosts.reach import HostLink, in_thread
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.files import cache_folder
from fleetrank.orchestrator.errors import HostDiedError, OrchestratorError
from fleetrank.orchestrator.identity import HOST_NAME

if TYPE_CHECKING:
    import ray

_log = logging.getLogger(__name__)

LABEL = "fleetrank-host"
_LOOK_S = 1.0
"""How often the list of nodes is read; it costs 0.2 ms."""
_CONNECT_S = 60.0
"""Ray's first actor takes 0.4 s on an idle host; a host that swaps takes longer."""
_STEP_S = 0.5
_LEAVE_S = 5.0
"""Ray answers in milliseconds whether a node or actor exists; leaving must not wait longer."""
_SETTLE_S = _CONNECT_S + 5.0
"""How long a new driver waits for the hosts that Ray lists: each can answer in this time."""
_CONCURRENCY = 64
"""Concurrent polls, probes and deliveries, each in a thread; each waiting driver uses one."""
_PART_BYTES = 16 * 1024 * 1024
"""Part size: small compared with an object store of 100 MB, large enough for few calls."""
_PART_TIMEOUT_S = 120.0
"""One part takes this long over a link of 1 Mbit/s."""


class HostActor(Host):
    """A host in a process of Ray."""

    def __init__(self, name: str, folder: str | None = None) -> None:
        """Takes the host's name and the spool's folder (default: the user's cache folder)."""
        # Ray sets it to 1 for its workers; our workers need the value of a normal shell.
        os.environ.pop("OMP_NUM_THREADS", None)
        # At the start: later the files can have changed, but the loaded code has not.
        code_sha256()
        super().__init__(cache_folder() / "hosts" / name if folder is None else Path(folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a process knows when it has joined Ray.

    Attributes:
        here: the name of the host it runs on; `None` if its node has no label.
        hosts: facts of the hosts that answered, by name.
        problems: why a listed host cannot be used, by name.
        dashboard: the address of Ray's dashboard; empty if it has none.
    """

    here: str | None
    hosts: Mapping[str, HostFacts]
    problems: Mapping[str, str]
    dashboard: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handle:
    """A host that has answered."""

    link: HostLink
    actor: "ray.actor.ActorHandle"
    facts: HostFacts


class RayHosts:
    """A `Reach` of the cluster this process is connected to; a separate thread watches it."""

    def __init__(
        self,
        folder: str | None = None,
        on_change: Callable[[Mapping[str, HostLink]], None] = lambda _hosts: None,
        *,
        silent_s: float = inf,
    ) -> None:
        """Watches nothing yet.

        Args:
            folder: of the hosts' spools; without it, each host uses its default.
            on_change: called with the hosts when one leaves or joins.
            silent_s: an actor that has never answered is restarted after this time.
        """
        self._folder = folder
        self._on_change = on_change
        self._silent_s = silent_s
        self._lock = threading.Lock()
        self._handles: dict[str, _Handle] = {}
        self._connecting: set[str] = set()
        self._problems: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._renewed: set[str] = set()
        self._silent_since_s: dict[str, float] = {}
        self._here = ""

    def __enter__(self) -> Self:
        import ray

        self._here = ray.get_runtime_context().get_node_id()
        self._look()
        self._start(threading.Thread(target=self._watch, name="host-watch", daemon=True))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        # Ray ends the process with code 1 if a thread calls it after its shutdown.
        for thread in self._threads:
            thread.join(_LEAVE_S)

    def hosts(self) -> Mapping[str, HostLink]:
        """Returns the hosts that answer now."""
        with self._lock:
            return {name: handle.link for name, handle in self._handles.items()}

    def call(self, host: str, method: str, *arguments: object) -> Future[Any]:
        """Calls a method of a host's actor; its errors can be read where Ray is not loaded."""
        answer: Future[Any] = Future()

        def receive(found: Future[Any]) -> None:
            error = found.exception()
            if error is None:
                answer.set_result(found.result())
            else:
                answer.set_exception(_without_ray(error))

        try:
            actor = self._actor_of(host)
            getattr(actor, method).remote(*arguments).future().add_done_callback(receive)
        except OrchestratorError as error:
            answer.set_exception(error)
        return answer

    def send_files(self, host: str, files: Sequence[Path]) -> Future[None]:
        """Sends files in parts, one after another: Ray keeps each part in its object store."""
        return in_thread(lambda: self._send_all(host, files))

    def restart(self, host: str, *, is_lost: bool) -> None:
        """Restarts a host's process; one that is lost counts as away until it answers."""
        import ray

        with self._lock:
            handle = self._handles.pop(host, None) if is_lost else self._handles.get(host)
        self._tell()
        if handle is not None:
            ray.kill(handle.actor, no_restart=False)

    def settle(self) -> Joined:
        """Waits until every listed host has answered or failed."""
        deadline_s = monotonic() + _SETTLE_S
        while monotonic() < deadline_s and not self._stop.wait(0.05):
            with self._lock:
                if not self._nodes.keys() - self._handles.keys() - self._problems.keys():
                    break
        with self._lock:
            here = [name for name, node_id in self._nodes.items() if node_id == self._here]
            return Joined(
                here=here[0] if here else None,
                hosts={name: handle.facts for name, handle in self._handles.items()},
                problems=dict(self._problems),
            )

    def _actor_of(self, host: str) -> "ray.actor.ActorHandle":
        with self._lock:
            handle = self._handles.get(host)
        if handle is None:
            raise OrchestratorError(
                f"host {host} is unavailable", "see `fleetrank doctor` with `cluster=auto`"
            )
        return handle.actor

    def _send_all(self, host: str, files: Sequence[Path]) -> None:
        import ray

        actor = self._actor_of(host)
        for path in files:
            for part in file_parts(path, path.name, _PART_BYTES):
                # After Ray has ended, `ray.put` would start a new Ray.
                if self._stop.is_set():
                    raise OrchestratorError("stopped on request", "it will be resent if needed")
                try:
                    ray.get(actor.receive.remote(ray.put(part)), timeout=_PART_TIMEOUT_S)
                except ray.exceptions.RayError as error:
                    raise _without_ray(error) from None

    def _tell(self) -> None:
        self._on_change(self.hosts())

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self._look()

    def _look(self) -> None:
        import ray

        try:
            listed = ray.nodes()
        except Exception as error:
            _log.warning("Ray does not list its nodes: %s", error)
            return
        found = {
            node["Labels"][LABEL]: node["NodeID"]
            for node in listed
            if node["Alive"] and re.fullmatch(HOST_NAME, node.get("Labels", {}).get(LABEL, ""))
        }
        with self._lock:
            self._nodes, n_before = found, len(self._handles)
            for name, handle in list(self._handles.items()):
                if found.get(name) != handle.link.node_id:
                    del self._handles[name]
            for name in list(self._problems):
                if name not in found:
                    del self._problems[name]
            wanted = found.keys() - self._handles.keys() - self._connecting
            self._connecting |= wanted
        if len(self._handles) < n_before:
            self._tell()
        for name in wanted:
            # In a thread, because other hosts must not wait for a host that hangs.
            self._start(
                threading.Thread(
                    target=self._connect,
                    args=(name, found[name]),
                    name=f"host-connect-{name}",
                    daemon=True,
                )
            )

    def _start(self, thread: threading.Thread) -> None:
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    def _connect(self, name: str, node_id: str) -> None:
        try:
            handle = self._reach(name, node_id)
        except Exception as error:
            with self._lock:
                self._problems[name] = str(error).strip().partition("\n")[0]
            # The next round tries again; not at once, because the failed call took time.
            self._stop.wait(_LOOK_S)
        else:
            with self._lock:
                self._handles[name] = handle
                self._problems.pop(name, None)
            self._tell()
        finally:
            with self._lock:
                self._connecting.discard(name)

    def _reach(self, name: str, node_id: str) -> _Handle:
        """Finds or makes a host's actor; an idle actor with older code is replaced."""
        import ray

        actor = self._actor(name)
        asked_s = monotonic()
        try:
            facts: HostFacts = self._answer(actor.describe.remote())
        except (ray.exceptions.GetTimeoutError, ray.exceptions.ActorUnavailableError):
            self._restart_silent(actor, node_id, asked_s)
            raise
        self._silent_since_s.pop(node_id, None)
        is_other = facts.code_sha256 != code_sha256()
        if is_other and not facts.n_running and node_id not in self._renewed:
            # Only once: if the new actor has other code too, that code is installed there.
            self._renewed.add(node_id)
            ray.kill(actor)
            actor = self._actor(name)
            facts = self._answer(actor.describe.remote())
        if facts.code_sha256 != code_sha256():
            raise OrchestratorError(_skew(facts), "install the same fleetrank on every host")
        asked_s = datetime.now(UTC).timestamp()
        theirs_s: float = self._answer(actor.clock_s.remote())
        # It was read since then: a difference that fits in between is not known.
        least_s = theirs_s - datetime.now(UTC).timestamp()
        ahead_s = min(max(least_s, 0.0), theirs_s - asked_s)
        has_files = node_id == self._here
        link = HostLink(node_id=node_id, has_files=has_files, clock_ahead_s=ahead_s)
        return _Handle(link=link, actor=actor, facts=replace(facts, clock_ahead_s=ahead_s))

    def _restart_silent(self, actor: "ray.actor.ActorHandle", node_id: str, asked_s: float) -> None:
        """Restarts an actor that never answers: it can be frozen, and its driver gone.

        Only once: if only this process cannot reach it, other drivers measure with it.
        """
        import ray

        since_s = self._silent_since_s.setdefault(node_id, asked_s)
        if monotonic() - since_s > self._silent_s and not self._stop.is_set():
            self._silent_since_s[node_id] = inf
            ray.kill(actor, no_restart=False)

    def _answer(self, reference: "ray.ObjectRef") -> Any:
        """Waits in short steps, so that leaving does not wait for a host that hangs."""
        import ray

        deadline_s = monotonic() + _CONNECT_S
        while True:
            try:
                answer = ray.get(reference, timeout=_STEP_S)
            except ray.exceptions.GetTimeoutError:
                if self._stop.is_set() or monotonic() > deadline_s:
                    raise
            else:
                return answer

    def _actor(self, name: str) -> "ray.actor.ActorHandle":
        import ray

        return (
            ray.remote(HostActor)
            .options(
                name=f"{LABEL}-{name}",
                get_if_exists=True,
                # The actor outlives its driver and keeps its measurements for the next driver.
                lifetime="detached",
                label_selector={LABEL: name},
                num_cpus=0,
                # A restarted actor can be used at once; Ray must not repeat calls by itself.
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=_CONCURRENCY,
            )
            .remote(name, self._folder)
        )


def _skew(facts: HostFacts) -> str:
    theirs = dict(facts.versions).get("fleetrank", "unknown")
    return (
        f"its fleetrank differs from this process: version {theirs}, Python "
        f"{facts.python_version}, source {facts.code_sha256[:8]} against {code_sha256()[:8]}"
    )


def _without_ray(error: BaseException) -> Exception:
    """The error of a call as one that can be read where Ray is not loaded."""
    import ray

    cause = getattr(error, "cause", None)
    if isinstance(cause, FleetError):
        return cause
    # Ray appends the traceback of the remote process to the errors of a method.
    lines = str(error).strip().splitlines() or [type(error).__name__]
    message = lines[-1] if isinstance(error, ray.exceptions.RayTaskError) else lines[0]
    if isinstance(error, ray.exceptions.ActorDiedError):
        return HostDiedError(message, "read Ray's logs on that host")
    return OrchestratorError(message, "read Ray's logs on that host")
