"""Attempts as a sweep stores them, made by hand: a test names only what it is about."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from headless_browser import headless_chromium

from fleetrank.analysis.stored.columns import READ_SCHEMA

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_START = datetime(2026, 1, 1, tzinfo=UTC)

MakeAttempts = Callable[[Iterable[Mapping[str, object]]], pl.LazyFrame]


def _attempt(given: Mapping[str, object]) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(READ_SCHEMA)
    row |= {
        "sweep_id": "s1", "model": "a", "device": "d1", "tier": "cpu", "origin": "measured",
        "runtime": "onnx", "backend": "cpu", "mode": "eager", "precision": "fp32", "batch": 1,
        "threads": 1, "options": "{}", "repeat": 0, "attempt": 0, "status": "ok", "seed": 7,
        "sample_kind": "per_inference", "memory_metric": "vmhwm_growth", "runtime_version": "1.0",
        "family": "mobile_cnn", "card_sha256": "c", "weights_id": "seeded:0", "input_size": 224,
        "flags": [], "sample_count": 100, "started_utc": _START,
    }  # fmt: skip
    row |= given
    for name, value in {
        "device_model": f"model of {row['device']}",
        "platform_key": f"{row['device']}/{row['runtime']}/b{row['batch']}/t{row['threads']}",
    }.items():
        row[name] = given.get(name, value)
    row["cell_key"] = given.get("cell_key", f"{row['model']} on {row['platform_key']}")
    if isinstance(row["started_utc"], int):
        row["started_utc"] = _START + timedelta(hours=row["started_utc"])
    return row


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """One browser for the tests of a file; its event loop must not run beside those of others."""
    with headless_chromium() as browser:
        yield browser


@pytest.fixture
def make_attempts() -> MakeAttempts:
    """Rows of the table from the columns that matter; `started_utc` may be given in hours."""

    def make(rows: Iterable[Mapping[str, object]]) -> pl.LazyFrame:
        return pl.DataFrame([_attempt(row) for row in rows], schema=READ_SCHEMA).lazy()

    return make


@pytest.fixture
def make_grid(make_attempts: MakeAttempts) -> Callable[..., pl.LazyFrame]:
    """One repeat per model and device: device -> latencies (ns) of models m0, m1, ..."""

    def make(
        latencies: Mapping[str, Iterable[float]],
        *,
        memory: Iterable[int] | None = None,
        flops: Iterable[int] | None = None,
        accuracy: Iterable[float] | None = None,
        **facts: Mapping[str, object],
    ) -> pl.LazyFrame:
        rows = []
        for device, series in latencies.items():
            n = len(list(series))
            parts = [list(part) if part is not None else [None] * n
                     for part in (memory, flops, accuracy)]  # fmt: skip
            for i, latency in enumerate(series):
                rows.append(
                    {"model": f"m{i}", "device": device, "latency_p50_ns": float(latency),
                     "peak_memory_bytes": parts[0][i], "flops": parts[1][i],
                     "accuracy_top1": parts[2][i], **facts.get(device, {})}
                )  # fmt: skip
        return make_attempts(rows)

    return make
