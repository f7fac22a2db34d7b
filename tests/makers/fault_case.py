"""One fault on a test cluster, from the harm to the proof that nothing was lost by it."""

import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cluster_driver import ClusterDriver, Event, WatchedSweep, is_failure, is_ok
from namespace_hosts import NamespaceHost, wait_until
from ray_cluster import RayCluster

WORKER = "fleetrank.device_agents.worker"
ACTOR = "ray::HostActor"
RAYLET = "raylet/raylet"
"""Parts of command lines by which processes are told apart."""
TABLE_HEAD = (
    "fault",
    "noticed s",
    "recovered s",
    "repeats",
    "failed attempts",
    "what became of it",
)
_OWN_HASH = (
    "from fleetrank.orchestrator.workspace.provenance import host_hash; print(host_hash()[:6])"
)


@dataclass(slots=True, kw_only=True)
class Case:
    """One fault, from the harm to the proof that nothing was lost by it."""

    cluster: RayCluster
    driver: ClusterDriver
    table: list[tuple[str, ...]]
    sweep: WatchedSweep | None = None
    harmed_s: float | None = None
    _is_touched: Callable[[Event], bool] = field(default=lambda event: True)

    def host(self, name: str) -> NamespaceHost:
        return self.cluster.network.hosts[name]

    def spool(self, host: str) -> Path:
        """Where a host keeps what no driver has stored yet; empty when there is nothing."""
        return self._kept(host) / "spool.jsonl"

    def _kept(self, host: str) -> Path:
        return self.host(host).home / ".cache" / "fleetrank" / "hosts" / host

    def start(self, *arguments: str) -> WatchedSweep:
        self.sweep = self.driver.sweep(*arguments)
        return self.sweep

    def harm(self, *devices: str) -> None:
        """Notes the moment of the fault, and the devices whose recovery is timed."""
        self.harmed_s = time.monotonic()
        self._is_touched = lambda event: not devices or event.get("device") in devices

    def cpu_of(self, host: str) -> str:
        """The name that a host's CPU has in sweeps."""
        done = self.host(host).run([sys.executable, "-c", _OWN_HASH])
        return f"cpu-{done.stdout.strip()}"

    def note(self, fault: str, outcome: str) -> None:
        """Adds the case to the table."""
        assert self.sweep is not None
        times = [f"{s:.1f}" if s is not None else "-" for s in self._times()]
        ends = self.driver.ends()
        n_failed = sum(row["status"] != "ok" for rows in ends.values() for row in rows)
        self.table.append((fault, *times, str(len(ends)), str(n_failed), outcome))

    def _times(self) -> tuple[float | None, float | None]:
        """Seconds to the first failed attempt and to the first good one after it."""
        if self.harmed_s is None or self.sweep is None:
            return None, None
        noticed_s = self._first(is_failure, self.harmed_s)
        recovered_s = self._first(is_ok, self.harmed_s if noticed_s is None else noticed_s)
        found = (noticed_s, recovered_s)
        return tuple(None if at_s is None else at_s - self.harmed_s for at_s in found)

    def _first(self, is_it: Callable[[Event], bool], after_s: float) -> float | None:
        return next(
            (
                at_s
                for at_s, event in self.sweep.events
                if at_s > after_s and is_it(event) and self._is_touched(event)
            ),
            None,
        )

    def assert_all_measured(self, n_repeats: int) -> None:
        """Every repeat of every cell has exactly one good row, whatever failed before it."""
        ends = self.driver.ends()
        assert len(ends) == n_repeats
        for rows in ends.values():
            assert [row["attempt"] for row in rows] == list(range(len(rows)))
            assert [row["status"] for row in rows].count("ok") == 1, rows
            for row in rows:
                assert row["status"] == "ok" or (row["error_kind"] and row["error_message"])

    def assert_nothing_left_behind(self) -> None:
        """No worker without a sweep, no file that is not what its name says."""
        hosts = {name: host for name, host in self.cluster.network.hosts.items() if host.is_on}
        for name, host in hosts.items():
            wait_until(
                lambda host=host: not host.processes(WORKER), f"workers of {name} to end", 5.0
            )
            folders = [self._kept(name) / "files"]
            folders.append(host.path(self.driver.root) / "artifacts" / "files")
            for folder in folders:
                assert not [path for path in folder.glob("*") if not _is_whole(path)]


def _is_whole(path: Path) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == path.name.partition(".")[0]
