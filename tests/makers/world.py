"""One workspace of five small sweeps, really measured once a run; tests read it, or a copy of it.

All workers of a run share it: the first that needs it makes it under a lock.
"""

import contextlib
import fcntl
import io
import json
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Literal, cast

import pytest
from short_measuring import shortened
from tiny_onnx import save_rounded, save_tiny_onnx

from fleetrank.models.export.process import ExportChild
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.store.results import ResultStore

DATA = Path(__file__).parents[1]
MEASURE = """runtimes: [{runtimes}]
devices: [{devices}]
repeats: {repeats}
measure: {{min_warmup_s: 0.0, min_runs: 20, min_observed_s: 0.0, max_time_s: 0.1}}
limits: {{timeout_s: 120, max_attempts: 2}}
"""
NETWORK = """family = "other"
source = "entry_point"
entry = "fleetrank.models.networks.primer:make_network"
input_size = 16
"""
FILE = 'family = "mobile_cnn"\nsource = "file"\nentry = "{file}"\n'
FILES = {
    "integers": "integers.onnx", "floats": "floats.onnx",
    "broken": "text.onnx", "bytes": "uint8.tflite",
}  # fmt: skip
SWEEPS = {
    "files": ("models: [bytes, integers, floats]\n", {}),
    "failures": (
        "models: [resnet18, stories260k, broken]\n"
        "workloads: [prefill@128, decode@128, generate@64+64]\n",
        {"devices": "sim-a, sim-b", "repeats": 2},
    ),
    "networks": ("models: [mine]\nprecision: int8\n", {"runtimes": "onnx"}),
}  # fmt: skip
"""What each sweep is about, and how it differs from `USUAL`."""
TEXT = (
    "eval", "ppl", "--model", "stories260k", "--text", str(DATA / "data/lm_eval/text.jsonl"),
    "--seeded", "--tokenizer", "bytes", "--window", "64",
)  # fmt: skip
USUAL = {"runtimes": "onnx, tflite", "devices": "local-cpu", "repeats": 1}
AB = (
    "ab", "a.onnx", "b.onnx", "--rounds", "3", "--margin", "900%", "--json",
)  # fmt: skip


def call_inside(
    root: Path, home: Path, *words: str, warnings_are: Literal["ignore", "error"] = "ignore"
) -> CompletedProcess[str]:
    """What `fleetrank WORDS` says and returns in a folder, in this process; it measures shortly."""
    out, error = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with (
        shortened(),
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter(warnings_are)
        patch.chdir(root)
        patch.setenv("HOME", str(home))
        patch.setattr(sys, "argv", ["fleetrank", *words])
        # The handlers of pytest would take what the command logs to standard error.
        patch.setattr(logging.getLogger(), "handlers", [])
        code = run(words)
    shown = [cast("io.BytesIO", one.buffer).getvalue().decode() for one in (out, error)]
    return CompletedProcess(words, code, *shown)


@dataclass(frozen=True)
class World:
    """The workspace, and what its commands said: `said["integers"]` is `sweep run integers`."""

    root: Path

    @property
    def said(self) -> dict[str, dict[str, Any]]:
        return json.loads((self.root / "said.json").read_text())

    @property
    def store(self) -> ResultStore:
        return ResultStore(self.root / "results")

    def sweep_id(self, name: str) -> str:
        (found,) = (one for one in self.store.sweep_ids() if one.startswith(name))
        return found

    def rows(self, name: str) -> list[dict[str, Any]]:
        return list(self.store.open_journal(self.sweep_id(name)).rows())

    def call(self, *words: str) -> CompletedProcess[str]:
        """Only for commands that change nothing."""
        return call_inside(self.root, self.root.parent, *words)

    def copy(self, root: Path) -> "World":
        """Of its own, except that exported files are the same files."""
        shutil.copytree(self.root, root, ignore=shutil.ignore_patterns("artifacts"))
        shutil.copytree(self.root / "artifacts", root / "artifacts", copy_function=os.link)
        return World(root)


def shared_world(folder: Path) -> World:
    """The world of a folder that all workers know; the first caller makes it."""
    with (folder / "world.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = folder / "world"
        if not (root / "said.json").exists():
            shutil.rmtree(root, ignore_errors=True)
            _make(root)
    return World(root)


def _make(root: Path) -> None:
    import onnx

    assert run(["init", str(root)]) == 0
    for kernel in ("integers", "floats"):
        save_rounded(root / f"{kernel}.onnx", kernel)
    model = onnx.load(save_tiny_onnx(root / "a.onnx"))
    model.doc_string = "the same graph under another name"
    onnx.save(model, root / "b.onnx")
    (root / "text.onnx").write_text("this is no network")
    shutil.copy(DATA / "models/data/uint8.tflite", root)
    for name, file in FILES.items():
        (root / "cards" / f"{name}.toml").write_text(FILE.format(file=root / file))
    (root / "cards/mine.toml").write_text(NETWORK)
    for name in ("sim-a", "sim-b"):
        (root / f"devices/{name}.yaml").write_text(f"name: {name}\nkind: simulated\n")
    commands = {"demo": ("results", "import", "--from", "demo"), "ab": AB}
    for name, (text, changes) in SWEEPS.items():
        shared = MEASURE.format(**(USUAL | changes))
        (root / f"sweeps/{name}.yaml").write_text(f"name: {name}\n{text}{shared}")
        commands[name] = ("sweep", "run", name, "--inline", "--progress", "none")
    # After all files of users: what could have read one ends the exporting process.
    commands["eval"] = (*TEXT, "--runtime", "onnx")
    with _one_exporting_process():
        done = {name: call_inside(root, root.parent, *words) for name, words in commands.items()}
    said = {
        name: {"code": one.returncode, "out": one.stdout, "err": one.stderr}
        for name, one in done.items()
    }
    (root / "said.json").write_text(json.dumps(said))


@contextlib.contextmanager
def _one_exporting_process() -> Iterator[None]:
    """The libraries of all exports are loaded once, in a child that outlives each sweep."""

    class Kept(ExportChild):
        def __exit__(self, *_: object) -> None: ...

    child = Kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetrank.orchestrator.export_lines.ExportChild", lambda: child)
        # Two lines would use it at once.
        patch.setattr("fleetrank.orchestrator.export_lines.usable_cores", lambda: 1)
        try:
            yield
        finally:
            child.end()
