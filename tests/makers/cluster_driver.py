"""A workspace on a host of a test cluster, and the real command run there."""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from namespace_hosts import HostProcess, NamespaceHost

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
hosts: {{silent_s: 12.0, wait_s: {wait_s}, takeover: {takeover}}}
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
    ) -> None:
        """Writes the sweep that `run` and `resume` are about."""
        text = _SPEC.format(
            models=", ".join(self.models),
            devices=", ".join(devices),
            repeats=repeats,
            max_time_s=max_time_s,
            wait_s=wait_s,
            takeover=str(takeover).lower(),
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
