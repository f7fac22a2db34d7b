"""Frontiers of public measurements, against figures worked out from the raw files here."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from fleetrank.analysis.arrays.pareto import frontier, overlap

RTX3090 = "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"
CORE_I9 = "benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv"
CORE_I7 = "benchmark-infer-fp32-nchw-pt240-cpu-i7_12700h-dynamo.csv"
Key = tuple[str, int]


def rows_of(name: str) -> list[dict[str, str]]:
    folder = Path(os.environ.get("FLEETRANK_PUBLIC_DATA", "../shared/data"))
    file = folder / "timm" / name
    if not file.exists():
        pytest.skip(f"{file} is not here; FLEETRANK_PUBLIC_DATA names a folder with timm/ in it")
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def accuracies() -> dict[Key, float]:
    """The best of a model's pretrained tags at each image size."""
    best: dict[Key, float] = {}
    for row in rows_of("results-imagenet.csv"):
        key = row["model"].split(".")[0], int(row["img_size"])
        best[key] = max(best.get(key, 0.0), float(row["top1"]))
    return best


def latencies(name: str) -> dict[Key, float]:
    return {
        (row["model"].split(".")[0], int(row["infer_img_size"])): 1000
        / float(row["infer_samples_per_sec"])
        for row in rows_of(name)
    }


def staircase(cost: np.ndarray, accuracy: np.ndarray) -> set[int]:
    """From the most accurate down, whoever is faster than all before; both have no duplicates."""
    kept, fastest = set(), np.inf
    for at in sorted(range(cost.size), key=lambda at: (-accuracy[at], cost[at])):
        if cost[at] < fastest:
            fastest = cost[at]
            kept.add(at)
    return kept


def test_frontiers_of_one_gpu_and_two_cpus_equal_counting_them() -> None:
    accuracy = accuracies()
    by_platform = {name: latencies(name) for name in (RTX3090, CORE_I9, CORE_I7)}
    keys = sorted(set(accuracy).intersection(*by_platform.values()))
    top1 = np.array([accuracy[key] for key in keys])
    masks, steps = {}, {}
    for name, known in by_platform.items():
        cost = np.array([known[key] for key in keys])
        masks[name] = frontier(np.column_stack([cost, -top1]))
        steps[name] = staircase(cost, top1)
        assert set(np.flatnonzero(masks[name])) == steps[name]
    assert {name: len(step) for name, step in steps.items()} == {
        RTX3090: 37, CORE_I9: 36, CORE_I7: 41
    }  # fmt: skip
    for source, target, precision, recall in (
        (RTX3090, CORE_I9, 0.54, 0.56),
        (RTX3090, CORE_I7, 0.57, 0.51),
        (CORE_I7, CORE_I9, 0.51, 0.58),
    ):
        found = overlap(masks[source], masks[target])
        assert found is not None
        shared = len(steps[source] & steps[target])
        assert found.precision == pytest.approx(shared / len(steps[source]))
        assert (round(found.precision, 2), round(found.recall, 2)) == (precision, recall)
