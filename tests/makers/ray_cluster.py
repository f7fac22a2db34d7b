"""A Ray cluster over the hosts of a test network, started as `docs/cluster.md` says."""

import json
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from host_network import HostNetwork
from namespace_hosts import HostProcess, NamespaceHost, wait_until

_PORT = 6379
_START_TIMEOUT_S = 60.0
RAY_ENV = {
    "RAY_AUTH_MODE": "token",
    "RAY_worker_niceness": "0",
    "RAY_worker_oom_score_adjustment": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A cut link is noticed after 8 s instead of 64 s.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    # A raylet whose head is gone ends after this long, for its supervisor to start another.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
}
_COMMON = [
    "--labels=fleetrank-host={name}",
    "--node-ip-address={address}",
    "--object-store-memory=100000000",
    "--include-log-monitor=false",
    "--num-cpus=1",
]
_SUPERVISED = "while true; do {command} --block; sleep 1; done"
_NODES = """
import json, sys
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10).values()
print(json.dumps([[node.labels["fleetrank-host"], node.state == 0] for node in nodes]))
"""


@dataclass(slots=True, kw_only=True)
class RayCluster:
    """The first host started is the head.

    Attributes:
        supervisors: what starts Ray again on a host, where it is asked to.
    """

    network: HostNetwork
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    head: NamespaceHost | None = None
    supervisors: dict[str, HostProcess] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """What `--cluster` takes."""
        if self.head is None:
            raise RuntimeError("no head was started")
        return f"{self.head.address}:{_PORT}"

    def start(self, host: NamespaceHost, *, is_supervised: bool = True) -> None:
        """Starts Ray and waits until it has joined; hosts have to be started one by one."""
        self._give_token(host)
        command = [str(Path(sys.executable).parent / "ray"), "start", *self._options(host)]
        log = host.folder / "ray.log"
        if is_supervised:
            loop = _SUPERVISED.format(command=shlex.join(command))
            started = host.start(["bash", "-c", loop, "fleetrank-ray-loop"], log=log)
            self.supervisors[host.name] = started
        else:
            done = host.run(command, timeout_s=_START_TIMEOUT_S)
            if done.returncode:
                raise RuntimeError(f"ray start on {host.name}: {done.stdout}{done.stderr}")
        self.wait_for(host.name, is_alive=True, timeout_s=_START_TIMEOUT_S)

    def mend(self, names: Sequence[str]) -> None:
        """Makes hosts well that a fault left off, cut or without Ray; the head has to be up."""
        for name in names:
            host = self.network.hosts[name]
            if not host.is_on:
                host.power_on()
                self.start(host)
            host.restore()
        wait_until(lambda: self.alive() >= set(names), f"{names} to be alive", 60.0)

    def alive(self) -> set[str]:
        """Hosts the head counts among the living."""
        if self.head is None:
            return set()
        done = self.head.run([sys.executable, "-c", _NODES, self.address], timeout_s=30)
        if done.returncode:
            return set()
        # A host that came back is in the list twice, dead and alive.
        return {name for name, is_alive in json.loads(done.stdout) if is_alive}

    def wait_for(self, name: str, *, is_alive: bool, timeout_s: float) -> None:
        """Waits until the head counts a host among the living, or no more."""
        deadline_s = time.monotonic() + timeout_s
        while (name in self.alive()) is not is_alive:
            if time.monotonic() > deadline_s:
                state = "alive" if is_alive else "dead"
                raise TimeoutError(
                    f"{name} was not {state} after {timeout_s} s; living: {self.alive()}"
                )
            time.sleep(0.2)

    def _options(self, host: NamespaceHost) -> list[str]:
        own = [part.format(name=host.name, address=host.address) for part in _COMMON]
        if self.head is None or self.head is host:
            self.head = host
            return ["--head", f"--port={_PORT}", "--include-dashboard=false", *own]
        return [f"--address={self.address}", *own]

    def _give_token(self, host: NamespaceHost) -> None:
        folder = host.home / ".ray"
        folder.mkdir(exist_ok=True)
        (folder / "auth_token").touch(mode=0o600)
        (folder / "auth_token").write_text(self.token)
        host.extra_env.update(RAY_ENV)
