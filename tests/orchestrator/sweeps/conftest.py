"""Workspaces with tiny models and simulated devices, and the real command in a process."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import pytest
import short_measuring
from world import call_inside

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.store.results import ResultStore

SIMULATED = """name: {name}
kind: simulated
options: {{duration_s: {duration_s}}}
"""
CARD = """family = "mobile_cnn"
source = "file"
entry = "{file}"
macs = 1000000
parameters = 1000
"""
SPEC = """name: t
models: [{models}]
runtimes: [onnx]
devices: [{devices}]
repeats: {repeats}
measure: {{min_warmup_s: 0.0, min_runs: 20, min_observed_s: 0.0, max_time_s: 0.1}}
limits: {{timeout_s: {timeout_s}, max_attempts: 2{memory}}}
"""


@dataclass(frozen=True)
class Folder:
    """A workspace, and `fleetrank` run in it as a user does."""

    root: Path
    home: Path

    def add_model(self, name: str, file: Path) -> None:
        (self.root / "cards" / f"{name}.toml").write_text(CARD.format(file=file))

    def add_device(self, name: str, duration_s: float = 0.0) -> None:
        text = SIMULATED.format(name=name, duration_s=duration_s)
        (self.root / "devices" / f"{name}.yaml").write_text(text)

    def write_spec(
        self,
        models: Sequence[str],
        devices: Sequence[str],
        *,
        repeats: int = 2,
        timeout_s: float = 60.0,
        memory: str | None = None,
    ) -> Path:
        path = self.root / "sweeps" / "t.yaml"
        text = SPEC.format(
            models=", ".join(models),
            devices=", ".join(devices),
            repeats=repeats,
            timeout_s=timeout_s,
            memory=f", memory_limit_bytes: {memory}" if memory else "",
        )
        path.write_text(text)
        return path

    def start(
        self,
        *arguments: str,
        setup: Callable[[], None] | None = None,
        before: Sequence[str] = (),
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen:
        """`setup` runs in the child, `before` stands before its command line."""
        return subprocess.Popen(
            [*before, sys.executable, "-P", short_measuring.PROGRAM, *arguments],
            cwd=self.root,
            env=os.environ | {"HOME": str(self.home), "PYTHONWARNINGS": ""} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=setup,  # noqa: PLW1509 - the tests have no threads
            start_new_session=True,
        )

    def run(
        self,
        *arguments: str,
        setup: Callable[[], None] | None = None,
        before: Sequence[str] = (),
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, setup=setup, before=before, env=env)
        out, error = process.communicate(timeout=600)
        return subprocess.CompletedProcess(arguments, process.returncode, out, error)

    def call(
        self, *arguments: str, warnings_are: Literal["ignore", "error"] = "ignore"
    ) -> subprocess.CompletedProcess[str]:
        """As `run`, but in this process: for what a command says and stores, which is quicker."""
        return call_inside(self.root, self.home, *arguments, warnings_are=warnings_are)

    @property
    def store(self) -> ResultStore:
        return ResultStore(self.root / "results")

    def rows(self) -> list[dict[str, object]]:
        store = self.store
        return list(store.open_journal(store.newest_sweep()).rows())

    def record(self) -> SweepRecord:
        return self.store.sweep_record(self.store.newest_sweep())


@pytest.fixture
def folder(tmp_path: Path, onnx_file: Path) -> Folder:
    """Four models, two simulated devices, and packages that would shadow ours."""
    root = tmp_path / "ws"
    for name in ("cards", "devices", "sweeps", "models", "fleetrank"):
        (root / name).mkdir(parents=True)
    for name in ("models", "fleetrank"):
        (root / name / "__init__.py").write_text("raise RuntimeError('shadowed')\n")
    (root / "cluster.yaml").write_text("cluster_name: t\n")
    found = Folder(root, tmp_path)
    for number in range(4):
        found.add_model(f"m{number}", onnx_file)
    found.add_device("sim-a")
    found.add_device("sim-b")
    return found
