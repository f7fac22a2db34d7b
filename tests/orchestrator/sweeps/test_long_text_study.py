"""A study of long texts from sweep to table: what the tables find is what the devices do."""

import json
from pathlib import Path

import pytest

from fleetrank.orchestrator.cli.main import run

pytestmark = pytest.mark.slow

CARD = """family = "llama"
source = "language"
entry = "net-{number}"

[language]
layers = 4
width = {width}
heads = {heads}
kv_heads = {heads}
head_size = 64
hidden = {hidden}
vocabulary = 8000
context = 8192
"""
SWEEP = """name: reading
models: [net-0, net-1, net-2, net-3, net-4]
workloads: [prefill@512, prefill@1024, prefill@2048, prefill@4096, segment@256+k8+n16]
runtimes: [onnx]
devices: [sim-a, sim-b]
repeats: 5
measure: {min_warmup_s: 0.0, min_runs: 20}
"""
DEVICE = """name: {name}
kind: simulated
options: {{peak_gflops: {gflops}, bandwidth_gbps: 50, noise: 0.01}}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five decoders on two devices that are bound by operations, so that these decide."""
    root = tmp_path_factory.mktemp("study") / "w"
    assert run(["init", str(root)]) == 0
    for number, hidden in enumerate((768, 1280, 1792, 2304, 2816)):
        card = CARD.format(number=number, width=512, heads=8, hidden=hidden)
        (root / "cards" / f"net-{number}.toml").write_text(card)
    for name, gflops in (("sim-a", 20), ("sim-b", 60)):
        device = DEVICE.format(name=name, gflops=gflops)
        (root / "devices" / f"{name}.yaml").write_text(device)
    (root / "sweeps" / "reading.yaml").write_text(SWEEP)
    sweep = str(root / "sweeps" / "reading.yaml")
    assert run(["sweep", "run", sweep, "--inline", "--workspace", str(root)]) == 0
    return root


def _rows(
    workspace: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> list[dict[str, object]]:
    shown = ["report", "show", "tokens", "--include-simulated", "--json"]
    capsys.readouterr()
    assert run([*shown, *words, "--workspace", str(workspace)]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_the_measured_crossover_is_that_by_operations(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [r for r in _rows(workspace, capsys, "--part", "crossover") if r["strategy"] == "hmt"]
    assert len(found) == 10
    ratios = sorted(float(str(row["measured_over_operations"])) for row in found)
    assert 0.9 < ratios[0] <= ratios[-1] < 1.1
    n_inside = 0
    for row in found:
        low, high = float(str(row["low_tokens"])), float(str(row["high_tokens"]))
        n_inside += low <= float(str(row["by_operations_tokens"])) <= high
    assert n_inside >= 9


def test_it_transfers_between_devices_that_operations_bind(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(workspace, capsys, "--part", "agreement")
    rhos = [row["rho"] for row in rows if row["strategy"] == "hmt"]
    assert rhos == [pytest.approx(1)] * 3


def test_a_text_beyond_the_context_has_a_reason_instead_of_a_time(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(workspace, capsys, "--part", "reading", "--tokens", "16384")
    long = [row for row in rows if row["tokens"] == 16384]
    assert {row["time_ms"] is None for row in long if row["strategy"] == "vanilla"} == {True}
    assert all("8,192" in str(row["reason"]) for row in long)
    assert all(row["time_ms"] for row in long if row["strategy"] == "hmt")
