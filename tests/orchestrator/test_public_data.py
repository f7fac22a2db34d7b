"""Figures on what others published, recomputed here from the raw files by plain arithmetic."""

import csv
import itertools
import json
import os
import re
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
S24_TFLITE = "qai-hub-samsung-galaxy-s24/tflite/npu/eager/fp16/*"


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


def _mebibytes(model: str, device: str, path: str) -> int:
    document = yaml.safe_load((ROOT / f"qai_hub/v0.46.1/{model}/perf.yaml").read_text())
    (component,) = document["precisions"]["float"]["components"].values()
    metrics = component["performance_metrics"][device][path]
    return metrics["estimated_peak_memory_range_mb"]["max"]


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


def test_latencies_are_the_raw_figures_in_our_units(workspace, capsys) -> None:
    rows = _table(workspace, capsys, "report", "show", "latency", "--model", "resnet50")
    gpu = [row for row in rows if "rtx-3090" in str(row["platform_key"])]
    # The file says 3219.06 samples a second at 224 px: 0.31065 ms each.
    assert [row["latency_p50_ms"] for row in gpu] == [pytest.approx(1e3 / 3219.06)]
    phone = [row for row in rows if "galaxy-s24/tflite/npu/eager/fp16" in str(row["platform_key"])]
    expected = _milliseconds("resnet50", "Samsung Galaxy S24", "tflite")
    assert [row["latency_p50_ms"] for row in phone] == [pytest.approx(expected)]


def test_frm_of_a_phone_is_the_cube_root_of_three_ratios(workspace, capsys) -> None:
    """FRM of ResNet50 over SqueezeNet: geometric means cancel in the quotient of two models."""
    rows = _table(
        workspace, capsys, "report", "show", "flops", "--part", "frm", "--runtime", "tflite"
    )
    key = "qai-hub-samsung-galaxy-s24/tflite/npu/eager/fp16/b1/t?/afree/{}"
    frm = {row["model"]: row["frm"] for row in rows if row["platform_key"] == key}
    device = "Samsung Galaxy S24"
    flops = 4.089e9 / 0.301e9
    latency = _milliseconds("resnet50", device, "tflite") / _milliseconds(
        "mobilenet_v2", device, "tflite"
    )
    memory = _mebibytes("resnet50", device, "tflite") / _mebibytes("mobilenet_v2", device, "tflite")
    assert frm["resnet50"] / frm["mobilenet_v2"] == pytest.approx(
        (flops * latency * memory) ** (1 / 3)
    )


def test_macs_differ_between_files_for_some_models_and_the_largest_is_kept(
    workspace, capsys
) -> None:
    found: dict[tuple[str, str], set[float]] = {}
    for path in (ROOT / "timm").glob("benchmark-infer-*.csv"):
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                if line["infer_gmacs"]:
                    key = (line["model"], line["infer_img_size"])
                    found.setdefault(key, set()).add(float(line["infer_gmacs"]))
    assert sum(len(values) > 1 for values in found.values()) == 67
    (model, size), values = next(item for item in sorted(found.items()) if len(item[1]) > 1)
    rows = _query(workspace, capsys, f"SELECT DISTINCT macs FROM measurements "
                  f"WHERE model = 'timm:{model}@{size}'")  # fmt: skip
    assert rows == [{"macs": round(max(values) * 1e9)}]


def _query(workspace: Path, capsys, sql: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert run(["query", sql, "--format", "json", "--workspace", str(workspace)]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_board_under_two_names_counts_once_and_nothing_is_lost(workspace, capsys) -> None:
    rows = _table(workspace, capsys, "report", "show", "trust", "--part", "dropped")
    mirrors = [row for row in rows if str(row["detail"]).startswith("mirror")]
    assert len(mirrors) == 62
    assert {row["reason"] for row in rows if row not in mirrors} == {"superseded"}
    assert {row["platform_key"].split("/")[0] for row in mirrors} == {
        "qai-hub-qcs8275-proxy", "qai-hub-qcs9075-proxy",
    }  # fmt: skip
    n_jobs = sum(
        path.read_text().count("job_id:") for path in (ROOT / "qai_hub").glob("*/*/perf.yaml")
    )
    (stored,) = _query(
        workspace, capsys, "SELECT count(*) AS n FROM measurements WHERE source = 'qai-hub'"
    )
    assert stored["n"] == n_jobs == 888


def test_jobs_in_the_slow_state_of_a_board_come_out_as_outliers(workspace, capsys) -> None:
    rows = _table(workspace, capsys, "report", "show", "trust", "--part", "findings")
    slow = {
        row["model"]
        for row in rows
        if row["what"] == "outlier against the fit"
        and row["platform_key"] == "qai-hub-sa8775p-adp/tflite/npu/eager/fp16/b1/t?/afree/{}"
    }
    # ResNet50 takes 14.4 ms there through TFLite and 3.4 ms through QNN, and so on.
    assert slow == {"efficientnet_b0", "mobilenet_v2", "resnet50", "squeezenet1_1"}
    for model in slow - {"mobilenet_v2", "squeezenet1_1", "efficientnet_b0"}:
        ratio = _milliseconds(model, "SA8775P ADP", "tflite") / _milliseconds(
            model, "SA8775P ADP", "qnn_dlc"
        )
        assert ratio > 3.5
    itself = {row["model"]: row["figure"] for row in rows
              if row["what"] == "outlier against itself"
              and "sa8775p" in str(row["platform_key"])}  # fmt: skip
    # Release 0.28.0 has 1.208 ms for MobileNetV2, release 0.46.1 has 5.179 ms.
    assert itself["mobilenet_v2"] == pytest.approx(5.179 / 1.208, rel=1e-3)


def test_every_row_states_its_statistic_and_ai_hubs_rows_their_placement(workspace, capsys) -> None:
    rows = _query(
        workspace, capsys, "SELECT source, statistic, count(*) AS n, count(graph_nodes) AS placed "
        "FROM measurements GROUP BY ALL ORDER BY ALL",
    )  # fmt: skip
    assert rows == [
        {"source": "qai-hub", "statistic": "minimum", "n": 888, "placed": 888},
        {"source": "timm", "statistic": "mean", "n": 9197, "placed": 0},
    ]
    # Counted in the files: jobs on the NPU with layers on another unit.
    partly = sum(
        "npu:" in counts and "cpu:" in counts
        for path in (ROOT / "qai_hub").glob("*/*/perf.yaml")
        for counts in re.findall(r"layer_counts:\n((?: +\w+: \d+\n)+)", path.read_text())
    )
    (found,) = _query(
        workspace, capsys,
        "SELECT count(*) AS n FROM measurements WHERE backend_nodes < graph_nodes",
    )  # fmt: skip
    assert found["n"] == partly == 22


def test_means_of_a_gpu_against_minima_of_a_phone_are_ranked_and_marked(workspace, capsys) -> None:
    pair = (
        "--source", "timm-nvidia-geforce-rtx-3090", "--target", S24_TFLITE,
    )  # fmt: skip
    for words in (("transfer",), ("trust", "--part", "ceiling")):
        rows = _table(workspace, capsys, "report", "show", *words, *pair)
        (row,) = [row for row in rows if (row["level"], row["measure"]) == ("pair", "latency")]
        assert "statistic: mean / minimum" in str(row["unlike"])
    assert row["figure"] == pytest.approx(0.7143, abs=5e-5)
    assert row["ceiling"] is None
