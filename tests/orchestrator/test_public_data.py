"""Figures on what others published, recomputed here from the raw files by plain arithmetic."""

import csv
import itertools
import json
import os
from pathlib import Path

import pytest
from scipy import stats

from fleetrank.orchestrator.cli.main import run

ROOT = Path(
    os.environ.get("FLEETRANK_PUBLIC_DATA") or Path(__file__).parents[2].parent / "shared" / "data"
)
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not (ROOT / "timm").is_dir(), reason="no ../shared/data, no FLEETRANK_PUBLIC_DATA"
    ),
]
RTX_3090 = "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"
I9 = "benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("public") / "w"
    assert run(["init", str(root)]) == 0
    for source in ("timm", "qai-hub"):
        folder = ROOT / source.replace("-", "_")
        assert run(["results", "import", "--from", source, str(folder),
                    "--workspace", str(root)]) == 0  # fmt: skip
    return root


def _table(workspace: Path, capsys, *arguments: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert run([*arguments, "--json", "--workspace", str(workspace)]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


def _speeds(name: str) -> dict[tuple[str, str], float]:
    with (ROOT / "timm" / name).open(newline="") as file:
        return {
            (line["model"], line["infer_img_size"]): float(line["infer_samples_per_sec"])
            for line in csv.DictReader(file)
        }


def test_gpus_and_cpus_of_timm_are_compared_on_request_as_scipy_does(workspace, capsys) -> None:
    """GPUs were measured at batch 1024, CPUs at batch 1; device models count once."""
    show = ("report", "show", "transfer", "--source-tier", "gpu", "--target-tier", "cpu",
            "--model", "timm:resnet*")  # fmt: skip
    assert {row["level"] for row in _table(workspace, capsys, *show)} == {"pair"}
    (row,) = [
        row
        for row in _table(workspace, capsys, *show, "--allow-unlike-batch")
        if (row["level"], row["measure"]) == ("tier", "latency")
    ]
    by_cluster: dict[tuple[str, str], list[float]] = {}
    files = [path.name for path in (ROOT / "timm").glob("benchmark-infer-*.csv")]
    for gpu, cpu in itertools.product(
        [name for name in files if "-cu1" in name], [name for name in files if "-cpu-" in name]
    ):
        here, there = _speeds(gpu), _speeds(cpu)
        # resnet*@224 of our cards have other names.
        names = [
            key for key in set(here) & set(there)
            if key[0].startswith("resnet") and key not in {("resnet18", "224"), ("resnet50", "224")}
        ]  # fmt: skip
        rho = stats.spearmanr([here[n] for n in names], [there[n] for n in names]).statistic
        device = gpu.removesuffix(".csv").removesuffix("-dynamo").rpartition("-")[2]
        by_cluster.setdefault((device, cpu), []).append(rho)
    expected = [sum(rhos) / len(rhos) for rhos in by_cluster.values()]
    assert (row["n_pairs"], row["n_clusters"]) == (8, len(expected)) == (8, 6)
    assert row["rho"] == pytest.approx(sum(expected) / len(expected), abs=1e-12)
    assert (row["batch"], row["target_batch"]) == ("1024", "1")


def test_rho_of_two_timm_devices_is_scipys_over_the_raw_files(workspace, capsys) -> None:
    gpu, cpu = _speeds(RTX_3090), _speeds(I9)
    common = sorted(set(gpu) & set(cpu))
    rho = stats.spearmanr([1 / gpu[c] for c in common], [1 / cpu[c] for c in common]).statistic
    rows = _table(
        workspace, capsys, "report", "show", "transfer",
        "--source", "timm-nvidia-geforce-rtx-3090", "--target", "timm-intel-core-i9-10940x",
    )  # fmt: skip
    (row,) = [row for row in rows if row["measure"] == "latency" and row["level"] == "pair"]
    assert row["n_models"] == len(common) == 1434
    assert row["rho"] == pytest.approx(rho, abs=1e-12)
    assert row["rho"] == pytest.approx(0.944, abs=5e-4)
