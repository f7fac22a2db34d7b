"""A workspace on a host of a test cluster, the real command run there, and faults that meet it."""

import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from namespace_hosts import HostProcess, NamespaceHost, RayCluster
from waiting import wait_until

from fleetrank.orchestrator.store.results import ResultStore

FLEETRANK = [sys.executable, "-P", "-c", "from fleetrank.orchestrator.cli.main import main; main()"]
_CARD = """family = "mobile_cnn"
source = "file"
entry = "{file}"
macs = 1000000
parameters = 1000
"""
_SIMULATED = """name: {name}
kind: simulated
host: {host}
options: {{duration_s: {duration_s}}}
"""
_SPEC = """name: t
models: [{models}]
runtimes: [onnx]
devices: [{devices}]
repeats: {repeats}
measure: {{min_warmup_s: 0.0, min_runs: 20, max_time_s: {max_time_s}, half_width: 0.001}}
limits: {{timeout_s: 60.0, max_attempts: 5}}
hosts: {{silent_s: 12.0, wait_s: {wait_s}, takeover: {takeover}, join: {join}}}
"""

Row = dict[str, object]
Event = dict[str, object]


@dataclass(slots=True, kw_only=True)
class WatchedSweep:
    """A sweep that runs, and when each of its events was seen.

    Attributes:
        events: seconds of the monotonic clock, and the event.
    """

    process: HostProcess
    events: list[tuple[float, Event]] = field(default_factory=list)
    _n_read: int = 0

    def look(self) -> None:
        """Reads what has been written since; the times are as exact as this is called often."""
        now_s = time.monotonic()
        with self.process.log.open("rb") as file:
            file.seek(self._n_read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._n_read += len(line)
                if line.startswith(b"{"):
                    self.events.append((now_s, json.loads(line)))

    def wait_for(self, is_it: Callable[[Event], bool], timeout_s: float, *, n: int = 1) -> None:
        """Waits for so many events of a kind, counted from the start."""
        deadline_s = time.monotonic() + timeout_s
        while sum(is_it(event) for _, event in self.events) < n:
            if time.monotonic() > deadline_s or not self.process.is_running:
                raise AssertionError(f"no such event in {timeout_s} s:\n{self.output[-3000:]}")
            time.sleep(0.05)
            self.look()

    def finish(self, timeout_s: float) -> int:
        """Waits for the end and returns the exit code."""
        deadline_s = time.monotonic() + timeout_s
        while self.process.is_running:
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not over after {timeout_s} s:\n{self.output[-3000:]}")
            time.sleep(0.05)
            self.look()
        self.look()
        return self.process.wait(1.0)

    @property
    def output(self) -> str:
        return self.process.log.read_text()


def is_ok(event: Event) -> bool:
    return event["event"] == "RepeatFinished" and event["error"] is None


def is_failure(event: Event) -> bool:
    return event["event"] == "RepeatFinished" and event["error"] is not None


@dataclass(slots=True, kw_only=True)
class ClusterDriver:
    """A user's workspace on one host.

    Attributes:
        address: of the cluster, as `--cluster` takes it.
        root: of the workspace, seen from the host.
    """

    host: NamespaceHost
    address: str
    root: Path
    models: tuple[str, ...] = ()
    _n_runs: int = 0

    def make(self, onnx_file: Path, n_models: int) -> None:
        """Makes the workspace: so many models, all of them the same small file."""
        for name in ("cards", "devices", "sweeps"):
            (self.here / name).mkdir(parents=True)
        (self.here / "cluster.yaml").write_text("cluster_name: t\n")
        (self.here / "m.onnx").write_bytes(onnx_file.read_bytes())
        self.models = tuple(f"m{number}" for number in range(n_models))
        for model in self.models:
            card = _CARD.format(file=self.root / "m.onnx")
            (self.here / "cards" / f"{model}.toml").write_text(card)

    def add_device(self, name: str, host: str, duration_s: float) -> None:
        """Registers a simulated device."""
        text = _SIMULATED.format(name=name, host=host, duration_s=duration_s)
        (self.here / "devices" / f"{name}.yaml").write_text(text)

    def write_spec(
        self,
        devices: Sequence[str],
        *,
        repeats: int,
        max_time_s: float = 0.5,
        wait_s: float = 60.0,
        takeover: bool = False,
        join: bool = False,
    ) -> None:
        """Writes the sweep that `run` and `resume` are about."""
        text = _SPEC.format(
            models=", ".join(self.models),
            devices=", ".join(devices),
            repeats=repeats,
            max_time_s=max_time_s,
            wait_s=wait_s,
            takeover=str(takeover).lower(),
            join=str(join).lower(),
        )
        (self.here / "sweeps" / "t.yaml").write_text(text)

    def sweep(self, *arguments: str) -> WatchedSweep:
        """Starts `sweep run t`, or what the arguments say, on the cluster."""
        self._n_runs += 1
        log = self.host.folder / f"{self.root.name}-{self._n_runs}.log"
        words = ["sweep", *(arguments or ("run", "t")), "--cluster", self.address]
        command = [*FLEETRANK, "--workspace", str(self.root), *words, "--progress", "jsonl"]
        return WatchedSweep(process=self.host.start(command, log=log))

    def run(self, *arguments: str, timeout_s: float = 60.0) -> str:
        """Runs `fleetrank` to its end and returns standard output; fails on any other end."""
        command = [*FLEETRANK, "--workspace", str(self.root), *arguments]
        done = self.host.run(command, timeout_s=timeout_s)
        if done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def waits(self, device: str) -> str:
        """Why a device waits, as `sweep status` says; empty if it does not."""
        status = json.loads(self.run("sweep", "status", "--json"))
        return next(one["waits"] or "" for one in status["devices"] if one["device"] == device)

    @property
    def here(self) -> Path:
        """The workspace as this machine sees it."""
        return self.host.path(self.root)

    def rows(self) -> list[Row]:
        """Every attempt that is stored."""
        store = ResultStore(self.here / "results")
        return list(store.open_journal(store.newest_sweep()).rows())

    def ends(self) -> dict[tuple[object, object], list[Row]]:
        """The attempts of each (cell, repeat), in their order."""
        found = defaultdict(list)
        for row in self.rows():
            found[row["cell_key"], row["repeat"]].append(row)
        return {key: sorted(rows, key=lambda row: row["attempt"]) for key, rows in found.items()}


WORKER = "fleetrank.device_agents.worker"
ACTOR = "ray::HostActor"
RAYLET = "raylet/raylet"
HEAD = "gcs/gcs_server"
"""Parts of command lines by which processes are told apart."""
TABLE_HEAD = (
    "fault",
    "noticed s",
    "recovered s",
    "repeats",
    "failed attempts",
    "what became of it",
)
_OWN_HASH = "from fleetrank.foundation.installation import host_hash; print(host_hash()[:6])"


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

    def failures(self) -> list[object]:
        """The kinds of the failed attempts, in the order of the rows."""
        return [row["error_kind"] for row in self.driver.rows() if row["status"] != "ok"]

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

    def recovers(
        self,
        n_repeats: int,
        fault: str,
        outcome: str,
        *,
        failures: list[str] | None = None,
        limit_s: float = 90.0,
    ) -> None:
        """The sweep ends well with every repeat, leaves nothing behind, and is in the table.

        With `failures`, those are the kinds of all attempts that failed.
        """
        assert self.sweep is not None
        assert self.sweep.finish(limit_s) == 0, self.sweep.output
        self.assert_all_measured(n_repeats)
        assert failures in (None, self.failures())
        self.assert_nothing_left_behind()
        self.note(fault, outcome)

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
