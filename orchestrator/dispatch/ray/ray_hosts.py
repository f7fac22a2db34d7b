"""The available hosts of a Ray cluster and the actor on each; watched in the background.

A host is a node with the label `fleetrank-host=NAME`. Its actor is made when the host is first
seen, and is found by name later. The actor outlives drivers; Ray restarts it when it dies.
"""

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Self

from fleetrank.device_agents.contract.task import Execution
from fleetrank.orchestrator.dispatch.host.host_facts import HostFacts, code_sha256
from fleetrank.orchestrator.dispatch.ray.host_actor import HostActor
from fleetrank.orchestrator.errors import OrchestratorError
from fleetrank.orchestrator.identity.cells import HOST_NAME, DeviceSpec

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
_CONCURRENCY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHandle:
    """A host that has answered.

    Attributes:
        node_id: Ray's id of the node; changes when the host has left and returned.
        shares_files: whether this process runs on the same host, so that paths are the same.
    """

    name: str
    node_id: str
    actor: "ray.actor.ActorHandle"
    facts: HostFacts
    shares_files: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The reason why a listed host cannot be used."""

    host: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a process knows when it has joined Ray.

    Attributes:
        here: the name of the host it runs on; `None` if its node has no label.
        hosts: facts of the hosts that answered, by name.
        problems: hosts that are listed and cannot be used.
        dashboard: the address of Ray's dashboard; empty if it has none.
    """

    here: str | None
    hosts: Mapping[str, HostFacts]
    problems: Sequence[Problem]
    dashboard: str


class RayHosts:
    """Watches the cluster this process is connected to, in a separate thread."""

    def __init__(self, folder: str | None = None) -> None:
        """Takes the folder of the hosts' spools; `None` uses each host's default."""
        self._folder = folder
        self._lock = threading.Lock()
        self._handles: dict[str, HostHandle] = {}
        self._connecting: set[str] = set()
        self._problems: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._renewed: set[str] = set()
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

    @property
    def here(self) -> str | None:
        """The name of the host this process runs on; `None` if its node has no label."""
        with self._lock:
            found = [name for name, node_id in self._nodes.items() if node_id == self._here]
        return found[0] if found else None

    @property
    def problems(self) -> Sequence[Problem]:
        """Hosts that are listed and cannot be used, with the reason."""
        with self._lock:
            return [Problem(host=name, message=text) for name, text in self._problems.items()]

    def handles(self) -> Mapping[str, HostHandle]:
        """Returns the hosts that answer now."""
        with self._lock:
            return dict(self._handles)

    def settle(self) -> Mapping[str, HostHandle]:
        """Waits until every listed host has answered or failed."""
        deadline_s = monotonic() + _SETTLE_S
        while monotonic() < deadline_s and not self._stop.wait(0.05):
            with self._lock:
                if not self._nodes.keys() - self._handles.keys() - self._problems.keys():
                    break
        return self.handles()

    def why_unsupported(self, host: str, device: DeviceSpec, execution: Execution) -> str | None:
        """Returns why a device cannot run this; `None` if it can, or if its host is unavailable."""
        import ray

        handle = self.handles().get(host)
        if handle is None:
            return None
        answer: str | None = ray.get(
            handle.actor.why_unsupported.remote(device, execution), timeout=_CONNECT_S
        )
        return answer

    def distrust(self, name: str) -> None:
        """Restarts a host's process that has died permanently or does not answer."""
        import ray

        with self._lock:
            handle = self._handles.pop(name, None)
        if handle is not None:
            ray.kill(handle.actor, no_restart=False)

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
            self._nodes = found
            for name, handle in list(self._handles.items()):
                if found.get(name) != handle.node_id:
                    del self._handles[name]
            for name in list(self._problems):
                if name not in found:
                    del self._problems[name]
            wanted = found.keys() - self._handles.keys() - self._connecting
            self._connecting |= wanted
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
        finally:
            with self._lock:
                self._connecting.discard(name)

    def _reach(self, name: str, node_id: str) -> HostHandle:
        """Finds or makes a host's actor; an idle actor with older code is replaced."""
        import ray

        actor = self._actor(name)
        facts = self._describe(actor)
        is_other = facts.code_sha256 != code_sha256()
        if is_other and not facts.n_running and node_id not in self._renewed:
            # Only once: if the new actor has other code too, that code is installed there.
            self._renewed.add(node_id)
            ray.kill(actor)
            actor = self._actor(name)
            facts = self._describe(actor)
        if facts.code_sha256 != code_sha256():
            raise OrchestratorError(_skew(facts), "install the same fleetrank on every host")
        is_here = node_id == self._here
        return HostHandle(
            name=name, node_id=node_id, actor=actor, facts=facts, shares_files=is_here
        )

    def _describe(self, actor: "ray.actor.ActorHandle") -> HostFacts:
        """Waits in short steps, so that leaving does not wait for a host that hangs."""
        import ray

        reference = actor.describe.remote()
        deadline_s = monotonic() + _CONNECT_S
        while True:
            try:
                facts: HostFacts = ray.get(reference, timeout=_STEP_S)
            except ray.exceptions.GetTimeoutError:
                if self._stop.is_set() or monotonic() > deadline_s:
                    raise
            else:
                return facts

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
