"""Stored rows of made-up fleets of any size, for benchmarks of the analysis."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "makers"))

import numpy as np
import polars as pl
from stored_part import write_part

from fleetrank.analysis.stored.columns import SCHEMA

FAMILIES = ("standard_cnn", "mobile_cnn", "efficient_cnn", "transformer", "hybrid")
_PART = 100_000
_CELL_SPREAD, _PROCESS_SPREAD, _SAMPLE_SPREAD = 0.3, 0.03, 0.01
"""Standard deviations of logarithms: of a model on a platform, of a process, of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of a made-up fleet; repeats follow from `n_rows`."""

    n_rows: int
    n_platforms: int
    n_models: int = 100
    n_samples: int = 100


def make_rows(folder: Path, shape: Shape) -> None:
    """Writes the rows: every model on every platform once, then all of them again."""
    target = folder / "measurements" / "sweep_id=made-up"
    rng = np.random.default_rng(0)
    cells = np.exp(rng.normal(0, _CELL_SPREAD, (shape.n_platforms, shape.n_models)))
    for start in range(0, shape.n_rows, _PART):
        index = pl.int_range(start, min(shape.n_rows, start + _PART), eager=True)
        rows = _made_up(index, shape, cells, rng)
        rows.pipe(write_part, target / f"part-{start:012}.parquet")


def _made_up(
    index: pl.Series, shape: Shape, cells: np.ndarray, rng: np.random.Generator
) -> pl.DataFrame:
    """Rows number `index`; of ten platforms two are CPUs and one is a GPU."""
    n_models, n_platforms = shape.n_models, shape.n_platforms
    model, cell = index % n_models, index // n_models % n_platforms
    size = (len(index), shape.n_samples)
    process = cells[cell, model] * np.exp(rng.normal(0, _PROCESS_SPREAD, len(index)))
    latency = 1e6 * (model.to_numpy() + 5) * process
    samples = (latency[:, None] * np.exp(rng.normal(0, _SAMPLE_SPREAD, size))).astype(int)
    device = "device-" + cell.cast(pl.String)
    tier = (cell % 10).replace_strict({0: "gpu", 1: "cpu", 2: "cpu"}, default="edge")
    p50, p95, p99 = np.percentile(samples, [50, 95, 99], axis=1)
    frame = pl.DataFrame(
        {
            "model": "model-" + model.cast(pl.String),
            "family": pl.Series([FAMILIES[i % 5] for i in model]),
            "platform_key": device + "/onnx/cpu/eager/fp32/b1/t1/afree/{}",
            "device": device, "device_model": "type-" + (cell // 2).cast(pl.String), "tier": tier,
            "repeat": index // n_models // n_platforms, "latency_p50_ns": p50,
            "latency_p95_ns": p95, "latency_p99_ns": p99, "flops": (model + 1) * 10**8,
            "parameters": (model + 1) * 10**6, "accuracy_top1": 60 + 20 * model / n_models,
            "peak_memory_bytes": (model + 2) * 2**20,
            "load_ns": index + 10**7, "first_inference_ns": index + 10**7,
            "samples_ns": samples.tolist(),
        }
    )  # fmt: skip
    constants: dict[str, object] = {
        "attempt": 0, "status": "ok", "origin": "measured", "batch": 1, "threads": 1,
        "runtime": "onnx", "precision": "fp32", "backend": "cpu", "mode": "eager",
        "sample_kind": "per_inference", "memory_metric": "vmhwm_growth", "runtime_version": "1",
        "weights_id": "seed-0", "card_sha256": "c", "input_size": 224, "seed": 7,
        "sample_count": shape.n_samples, "options": "{}", "flags": [],
        "started_utc": datetime(2026, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    whole = frame.with_columns(
        *(pl.lit(value, SCHEMA[name]).alias(name) for name, value in constants.items()),
        pl.format("{}@{}", "model", "platform_key").alias("cell_key"),
        has_attention=pl.col("family") == "transformer",
    )
    names = [name for name in SCHEMA if name != "sweep_id"]
    absent = [pl.lit(None, SCHEMA[name]).alias(name) for name in names if name not in whole.columns]
    return whole.with_columns(absent).select(pl.col(name).cast(SCHEMA[name]) for name in names)
