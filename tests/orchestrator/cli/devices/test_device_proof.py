"""`devices check --proof` really measures both ways; `devices show` prints what is stored."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from adb_bench import keep_canary
from wording import has

from fleetrank.device_agents import proving
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.workspace.device_registry import local_cpu
from tests.device_agents.conftest import QUICK

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a tiny canary; one short pair in place of five."""
    for name in ("devices", "cards", "sweeps", "artifacts"):
        (tmp_path / name).mkdir()
    (tmp_path / "cluster.yaml").touch()
    (tmp_path / "devices" / "sim.yaml").write_text("name: sim\nkind: simulated\n")
    keep_canary(tmp_path / "artifacts")
    monkeypatch.setattr(proving, "N_PAIRS", 1)
    monkeypatch.setattr(proving, "PROOF_POLICY", QUICK)
    return tmp_path


def test_this_host_is_proven_and_shows_its_proof(root: Path, capsys) -> None:
    code = run(["devices", "check", "--proof", "--json", "--workspace", str(root)])
    said = json.loads(capsys.readouterr().out)
    # How alike the latencies of one pair are is chance on a machine that runs other tests.
    assert code == (3 if said["findings"] else 0)
    assert has(said["outputs"], "equal", "every bit")
    assert has(said["line"], "the range of 1 pair", "as asked")
    assert said["ratio"] == pytest.approx(said["fleetrank_ns"][0] / said["bare_ns"][0], abs=1e-4)
    stored = yaml.safe_load((root / "devices" / f"{local_cpu().name}.yaml").read_text())["proof"]
    assert stored.items() <= said.items()
    assert run(["devices", "show", "--json", "--workspace", str(root)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["proof_line"]) == (local_cpu().name, said["line"])


@pytest.mark.thorough
def test_a_slow_bare_way_and_other_outputs_are_findings(
    root: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare, infer = CpuAgent.measure_bare, CpuAgent.infer

    def slow(*given) -> tuple[int, ...]:
        return tuple(20 * one for one in bare(*given))

    def wrong(agent: CpuAgent, task: InferTask, *rest) -> None:
        assert infer(agent, task, *rest) is None
        with np.load(task.outputs_path) as outputs:
            np.savez(task.outputs_path, **{name: one + 1 for name, one in outputs.items()})

    monkeypatch.setattr(CpuAgent, "measure_bare", slow)
    monkeypatch.setattr(CpuAgent, "infer", wrong)
    assert run(["devices", "check", "--proof", "--workspace", str(root)]) == 3
    assert has(capsys.readouterr().out, "finding: fleetrank's way differs", "finding: its outputs")


def test_a_kind_without_a_bare_way_is_refused(root: Path, capsys) -> None:
    assert run(["devices", "check", "sim", "--proof", "--workspace", str(root)]) == 2
    assert has(capsys.readouterr().err, "no bare way", "simulated")
