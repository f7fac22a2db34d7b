"""Figures on what others published, recomputed here from the raw files by plain arithmetic."""

import csv
import json
import os
from pathlib import Path

import pytest
import yaml
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


def _milliseconds(model: str, device: str, path: str) -> float:
    document = yaml.safe_load((ROOT / f"qai_hub/v0.46.1/{model}/perf.yaml").read_text())
    (component,) = document["precisions"]["float"]["components"].values()
    return component["performance_metrics"][device][path]["inference_time_milliseconds"]


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


def test_latencies_are_the_raw_figures_in_our_units(workspace, capsys) -> None:
    rows = _table(workspace, capsys, "report", "show", "latency", "--model", "resnet50")
    gpu = [row for row in rows if "rtx-3090" in str(row["platform_key"])]
    # The file says 3219.06 samples a second at 224 px: 0.31065 ms each.
    assert [row["latency_p50_ms"] for row in gpu] == [pytest.approx(1e3 / 3219.06)]
    phone = [row for row in rows if "galaxy-s24/tflite/npu/eager/fp16" in str(row["platform_key"])]
    expected = _milliseconds("resnet50", "Samsung Galaxy S24", "tflite")
    assert [row["latency_p50_ms"] for row in phone] == [pytest.approx(expected)]
