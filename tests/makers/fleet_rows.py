"""Made-up results folders for tests: the study's models on a few platforms, by a plain roofline.

Latency is an overhead per model plus FLOPs over the platform's speed, with a seeded factor per
(model, platform) so that ranks differ between platforms, and a smaller one per process.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from stored_part import part_of, write_part

from fleetrank.analysis.stored.columns import SCHEMA

SWEEP = "paper13-20261121T080000-ab12"
STARTED = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    name: str
    family: str
    mflops: float
    parameters: float
    accuracy: float | None
    overhead: float
    has_attention: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    device: str
    tier: str
    runtime: str
    gflops: float
    threads: int = 1
    origin: str = "measured"
    device_model: str | None = None


_NETS = (
    ("resnet18", "standard_cnn", 3628, 11.7e6, 69.758, 0.6, False),
    ("resnet50", "standard_cnn", 8178, 25.6e6, 76.13, 1.2, False),
    ("densenet121", "standard_cnn", 5668, 8.0e6, 74.434, 3.2, False),
    ("mobilenet_v2", "mobile_cnn", 602, 3.5e6, 71.878, 1.0, False),
    ("mobilenet_v3_large", "mobile_cnn", 434, 5.5e6, 74.042, 1.3, False),
    ("mnasnet1_0", "mobile_cnn", 628, 4.4e6, 73.456, 1.0, False),
    ("squeezenet1_1", "mobile_cnn", 698, 1.24e6, 58.178, 0.3, False),
    ("efficientnet_b0", "efficient_cnn", 772, 5.3e6, 77.692, 2.1, False),
    ("inception_v3", "efficient_cnn", 11426, 27.2e6, 77.294, 2.2, False),
    ("levit_128s", "transformer", 610, 7.8e6, 76.52, 2.4, True),
    ("deit_tiny", "transformer", 2520, 5.7e6, 72.19, 1.6, True),
    ("convnext_tiny", "hybrid", 8912, 28.6e6, 82.52, 1.9, False),
    ("mobilevit_xxs", "hybrid", 840, 1.27e6, 68.936, 2.9, True),
)  # fmt: skip
NETS = tuple(
    Net(
        name=name, family=family, mflops=mflops, parameters=parameters, accuracy=accuracy,
        overhead=overhead, has_attention=has_attention,
    )
    for name, family, mflops, parameters, accuracy, overhead, has_attention in _NETS
)  # fmt: skip
PLACES = tuple(
    Place(device=device, tier=tier, runtime=runtime, gflops=gflops * speed, device_model=model)
    for device, model, tier, gflops in (
        ("cpu-3fa2c1", "Xeon 8481C", "cpu", 60.0),
        ("pixel-7", "Google Pixel 7", "edge", 18.0),
        ("rtx-4090", "NVIDIA RTX 4090", "gpu", 2500.0),
    )
    for runtime, speed in (("onnx", 1.0), ("tflite", 0.8))
)
HOSTILE_MODEL = '<script>alert("model")</script>'
HOSTILE_DEVICE = "</script><img src=x onerror=alert(1)>'\"&"


def write_results(
    results: Path,
    *,
    nets: Sequence[Net] = NETS,
    places: Sequence[Place] = PLACES,
    repeats: int = 5,
    n_samples: int = 40,
    sweep: str = SWEEP,
    seed: int = 1,
) -> Path:
    """Writes measurements and the sweep's record as the store does, and returns the folder."""
    rows = [
        row
        for number, place in enumerate(places)
        for row in _platform_rows(nets, place, repeats, n_samples, sweep, seed + number)
    ]
    return store_rows(results, rows, sweep)


def store_rows(results: Path, rows: Sequence[Mapping[str, object]], sweep: str) -> Path:
    """Writes the rows and the record of their sweep."""
    pl.DataFrame(rows, schema=SCHEMA, strict=False).pipe(write_part, part_of(results, sweep))
    (results / "schema.json").write_text('{"schema_version": 1}')
    (results / "sweeps").mkdir(exist_ok=True)
    (results / "sweeps" / f"{sweep}.json").write_text(json.dumps(record(sweep)))
    return results


def hostile_results(results: Path) -> Path:
    """Results in which a model and a device carry markup in their names."""
    odd = Net(
        name=HOSTILE_MODEL,
        family="hybrid",
        mflops=1000,
        parameters=2e6,
        accuracy=70.0,
        overhead=1.0,
    )
    places = [*PLACES[:4], Place(device=HOSTILE_DEVICE, tier="edge", runtime="onnx", gflops=9.0)]
    return write_results(results, nets=[*NETS, odd], places=places)  # fmt: skip


def part_in(results: Path) -> Path:
    """The only file of measurements."""
    (part,) = (results / "measurements").rglob("*.parquet")
    return part


def with_rounds(results: Path) -> Path:
    """Every repeat of a CPU is a round of all its models, with four equal blocks."""
    frame = pl.read_parquet(part_in(results))
    median = pl.col("latency_p50_ns").round().cast(pl.Int64)
    blocks = {
        "round_id": pl.format("{}/{}", "platform_key", "repeat"),
        "design": pl.lit("rounds"),
        "block_medians_ns": pl.concat_list([median] * 4),
        "block_starts_ns": pl.lit([0, 10**9, 2 * 10**9, 3 * 10**9]),
    }
    frame.with_columns(
        pl.when(pl.col("tier") == "cpu").then(value.cast(frame.schema[name])).alias(name)
        for name, value in blocks.items()
    ).pipe(write_part, part_in(results))
    return results


def record(sweep: str = SWEEP) -> dict[str, object]:
    """A sweep's record as the orchestrator writes it."""
    return {
        "sweep_id": sweep,
        "state": "finished",
        "command_line": "fleetrank sweep run sweeps/paper13.yaml",
        "python_version": "3.11.9",
        "versions": {"fleetrank": "0.1.0", "onnxruntime": "1.27.0"},
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "host": "9d5ed6",
        "started_utc": STARTED.isoformat(),
        "finished_utc": (STARTED + timedelta(hours=2)).isoformat(),
        "skipped": [
            {"label": "my_model tflite fp32 t1", "reason": "an ONNX file runs in onnx only"}
        ],
    }


def _platform_rows(
    nets: Sequence[Net], place: Place, repeats: int, n_samples: int, sweep: str, seed: int
) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    rows = []
    for net in nets:
        quirk = float(np.exp(rng.normal(0, 0.25)))
        ideal_ns = 1e6 * quirk * (net.overhead * 60 / place.gflops + net.mflops / place.gflops)
        for repeat in range(repeats):
            process_ns = ideal_ns * float(np.exp(rng.normal(0, 0.04)))
            samples = (process_ns * np.exp(rng.normal(0.0, 0.01, n_samples))).astype(np.int64)
            rows.append(_row(net, place, repeat, samples, sweep))
        rows[-1]["flags"] = ["drift"] if rng.random() < 0.1 else []
        if rng.random() < 0.06:
            rows.append({**rows[-1], **_FAILURE, "attempt": 1})
    return rows


_FAILURE: dict[str, object] = {
    "status": "failed", "error_kind": "timed_out", "error_message": "no result within 120 s",
    "error_remedy": "raise limits.timeout_s", "error_stage": "run", "error_is_transient": True,
    "samples_ns": None, "sample_count": None, "latency_p50_ns": None, "latency_p90_ns": None,
    "latency_p95_ns": None, "latency_p99_ns": None, "latency_mean_ns": None,
    "latency_std_ns": None, "peak_memory_bytes": None,
}  # fmt: skip


def shared_facts(
    name: str, family: str, parameters: float, repeat: int, samples: np.ndarray, origin: str
) -> dict[str, object]:
    """What rows of images and of text state alike."""
    p50, p90, p95, p99 = np.percentile(samples, [50, 90, 95, 99])
    start = STARTED + timedelta(seconds=repeat * 600)
    return {
        "repeat": repeat, "attempt": 0, "schema_version": 1, "fleetrank_version": "0.1.0",
        "seed": 7, "model": name, "family": family, "card_sha256": f"{name:0<64}"[:64],
        "weights_kind": "seeded", "weights_id": "seed-0", "flops_method": "counted",
        "parameters": int(parameters), "artifact_format": "onnx", "origin": origin,
        "host": "9d5ed6", "os": "Linux 6.1", "memory_bytes": 8 << 30, "backend": "cpu",
        "mode": "eager", "precision": "fp32", "batch": 1, "options": "{}", "status": "ok",
        "sample_kind": "per_inference", "samples_ns": samples.tolist(),
        "sample_count": len(samples), "latency_p50_ns": float(p50), "latency_p90_ns": float(p90),
        "latency_p95_ns": float(p95), "latency_p99_ns": float(p99),
        "latency_mean_ns": float(samples.mean()), "latency_std_ns": float(samples.std(ddof=1)),
        "load_ns": int(p50 * 20), "first_inference_ns": int(p50 * 4),
        "memory_metric": "simulated" if origin == "simulated" else "vmhwm_growth",
        "runtime_settings": "{}", "niceness": 0, "flags": [], "started_utc": start,
        "finished_utc": start + timedelta(seconds=5),
    }  # fmt: skip


def _row(net: Net, place: Place, repeat: int, samples: np.ndarray, sweep: str) -> dict[str, object]:
    platform = f"{place.device}/{place.runtime}/cpu/eager/fp32/b1/t{place.threads}/afree/{{}}"
    memory = int(net.parameters * 4.4 + 8e6 + net.mflops * 2000)
    return shared_facts(net.name, net.family, net.parameters, repeat, samples, place.origin) | {
        "sweep_id": sweep, "cell_key": f"{net.name}@{platform}",
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "has_attention": net.has_attention, "input_size": 224,
        "macs": int(net.mflops * 5e5), "flops": int(net.mflops * 1e6),
        "accuracy_top1": net.accuracy, "accuracy_source": "published",
        "artifact_sha256": "a" * 64, "artifact_bytes": int(net.parameters * 4),
        "artifact_max_relative_error": 1e-6, "exporter_versions": '{"onnx": "1.22"}',
        "device": place.device, "device_model": place.device_model or place.device,
        "tier": place.tier, "arch": "x86_64", "cpu_model": "some CPU", "logical_cores": 2,
        "physical_cores": 1, "is_virtual_machine": True, "platform_key": platform,
        "runtime": place.runtime, "threads": place.threads,
        "warmup_ns": int(np.percentile(samples, 50) * 30), "warmup_runs": 20,
        "stop_reason": "half_width", "baseline_memory_bytes": 60 << 20,
        "load_peak_memory_bytes": memory * 2, "peak_memory_bytes": memory,
        "runtime_version": "1.27.0", "python_version": "3.11.9",
    }  # fmt: skip
