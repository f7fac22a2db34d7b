"""The hosts of a Ray cluster: who is there, and the actor on each; looked after in the background.

A host is a node with the label `fleetrank-host=NAME`. Its actor is made when the host is first
seen, and found again by name later: it outlives drivers, and Ray starts it anew when it dies.
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
from fleetrank.orchestrator.workspace.device_spec import HOST_NAME, DeviceSpec

if TYPE_CHECKING:
    import ray

_log = logging.getLogger(__name__)

LABEL = "fleetrank-host"
_LOOK_S = 1.0
"""How often the list of nodes is read; it costs 0.2 ms."""
_CONNECT_S = 60.0
"""Ray's first actor takes 0.4 s on an idle host; one that swaps takes long."""
_STEP_S = 0.5
_LEAVE_S = 5.0
"""Ray answers within milliseconds whether a node or an actor is there; leaving is not for ever."""
_SETTLE_S = _CONNECT_S + 5.0
"""A driver that has just connected waits so long for hosts that Ray lists: until each has had its
chance."""
_CONCURRENCY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHandle:
    """A host that answers.

    Attributes:
        node_id: changes when the host has left and come back.
        shares_files: it is the host this process runs on, whose paths hold there.
    """

    name: str
    node_id: str
    actor: "ray.actor.ActorHandle"
    facts: HostFacts
    shares_files: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a host that Ray lists cannot be used."""

    host: str
    message: str


class RayHosts:
    """Watches the cluster this process is connected to, in a thread of its own."""

    def __init__(self, folder: str | None = None) -> None:
        """Takes the folder of the hosts' spools; `None` is each host's own."""
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
        # Ray ends the whole process, with code 1, when a thread asks it after it was shut down.
        for thread in self._threads:
            thread.join(_LEAVE_S)

    @property
    def here(self) -> str | None:
        """The name of the host this process runs on; `None` when its node has no label."""
        with self._lock:
            found = [name for name, node_id in self._nodes.items() if node_id == self._here]
        return found[0] if found else None

    @property
    def problems(self) -> Sequence[Problem]:
        """Hosts that are listed and cannot be used, with the reason."""
        with self._lock:
            return [Problem(host=name, message=text) for name, text in self._problems.items()]

    def handles(self) -> Mapping[str, HostHandle]:
        """The hosts that answer now."""
        with self._lock:
            return dict(self._handles)

    def settle(self) -> Mapping[str, HostHandle]:
        """Waits until every host that is listed answers, or does not."""
        deadline_s = monotonic() + _SETTLE_S
        while monotonic() < deadline_s and not self._stop.wait(0.05):
            with self._lock:
                if not self._nodes.keys() - self._handles.keys() - self._problems.keys():
                    break
        return self.handles()

    def why_unsupported(self, host: str, device: DeviceSpec, execution: Execution) -> str | None:
        """Why a device cannot execute so; `None` when it can, or its host is not there to ask."""
        import ray

        handle = self.handles().get(host)
        if handle is None:
            return None
        answer: str | None = ray.get(
            handle.actor.why_unsupported.remote(device, execution), timeout=_CONNECT_S
        )
        return answer

    def distrust(self, name: str) -> None:
        """Has the host's process started anew: it has died for good or does not answer."""
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
            # A host that hangs must not keep the others waiting.
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
            # The next look tries again; not at once, since what failed took its time.
            self._stop.wait(_LOOK_S)
        else:
            with self._lock:
                self._handles[name] = handle
                self._problems.pop(name, None)
        finally:
            with self._lock:
                self._connecting.discard(name)

    def _reach(self, name: str, node_id: str) -> HostHandle:
        """Finds or makes a host's actor; one that runs older code is replaced while it is idle."""
        import ray

        actor = self._actor(name)
        facts = self._describe(actor)
        is_other = facts.code_sha256 != code_sha256()
        if is_other and not facts.n_running and node_id not in self._renewed:
            # Once: what comes back with other code has it installed.
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
        """Waits in short steps, so that nobody who leaves waits for a host that hangs."""
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
                # It outlives its driver, and what it measures meanwhile waits for the next one.
                lifetime="detached",
                label_selector={LABEL: name},
                num_cpus=0,
                # An actor started again is as good as new; no call is made twice behind our back.
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=_CONCURRENCY,
            )
            .remote(name, self._folder)
        )


def _skew(facts: HostFacts) -> str:
    theirs = dict(facts.versions).get("fleetrank", "unknown")
    return (
        f"it runs another fleetrank than this process: version {theirs}, Python "
        f"{facts.python_version}, source {facts.code_sha256[:8]} against {code_sha256()[:8]}"
    )
