"""A workspace on a host of a test cluster, and the real command run there."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from namespace_hosts import HostProcess, NamespaceHost

from orchestrator.store.results import ResultStore

_FLEETRANK = [sys.executable, "-P", "-c", "from orchestrator.cli.main import main; main()"]
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
measure: {{min_warmup_s: 0.0, min_runs: 20, max_time_s: {max_time_s}}}
limits: {{timeout_s: 30.0, max_attempts: 5}}
"""

Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDriver:
    """A user's workspace on one host.

    Attributes:
        address: of the cluster, as `--cluster` takes it.
        root: of the workspace, seen from the host.
    """

    host: NamespaceHost
    address: str
    root: Path

    def make(self, onnx_file: Path, n_models: int) -> None:
        """Makes the workspace: so many models, all of them the same small file."""
        for name in ("cards", "devices", "sweeps"):
            (self.here / name).mkdir(parents=True)
        (self.here / "cluster.yaml").write_text("cluster_name: t\n")
        (self.here / "m.onnx").write_bytes(onnx_file.read_bytes())
        for number in range(n_models):
            card = _CARD.format(file=self.root / "m.onnx")
            (self.here / "cards" / f"m{number}.toml").write_text(card)

    def add_device(self, name: str, host: str, duration_s: float) -> None:
        text = _SIMULATED.format(name=name, host=host, duration_s=duration_s)
        (self.here / "devices" / f"{name}.yaml").write_text(text)

    def write_spec(
        self,
        models: Sequence[str],
        devices: Sequence[str],
        *,
        repeats: int,
        max_time_s: float = 0.5,
    ) -> None:
        text = _SPEC.format(
            models=", ".join(models),
            devices=", ".join(devices),
            repeats=repeats,
            max_time_s=max_time_s,
        )
        (self.here / "sweeps" / "t.yaml").write_text(text)

    def start(self, *arguments: str) -> HostProcess:
        """Starts `fleetrank` with the cluster's address; JSON lines of events go to its log."""
        command = [*_FLEETRANK, "--workspace", str(self.root), *arguments]
        return self.host.start([*command, "--cluster", self.address], log=self.log)

    def run(self, *arguments: str, timeout_s: float = 60.0) -> str:
        """Runs `fleetrank` to its end and returns standard output; fails on any other end."""
        command = [*_FLEETRANK, "--workspace", str(self.root), *arguments]
        done = self.host.run(command, timeout_s=timeout_s)
        if done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    @property
    def here(self) -> Path:
        """The workspace as this machine sees it."""
        return self.host.path(self.root)

    @property
    def log(self) -> Path:
        return self.host.folder / f"{self.root.name}.log"

    def rows(self) -> list[Row]:
        """Every attempt that is stored."""
        store = ResultStore(self.here / "results")
        try:
            sweep = store.newest_sweep()
        except Exception:
            return []
        return list(store.open_journal(sweep).rows())
