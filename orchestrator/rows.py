"""The columns that a measurement gives; the summaries of samples are calculated only here.

`Column.field` in `analysis/stored/columns.py` says where a measurement has a value. What is not
there is calculated here: summaries of the samples, and facts that have several sources.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetrank.analysis.stored.column import Column
from fleetrank.analysis.stored.columns import COLUMNS
from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Measurement, ToolSummary
from fleetrank.device_agents.contract.task import Options
from fleetrank.device_agents.flags import host_overhead_ns
from fleetrank.foundation.vocabulary import Design, Statistic
from fleetrank.orchestrator.keys import affinity_text, canonical_json

Row = dict[str, object]
"""One row of `analysis.stored.columns.SCHEMA`, as JSON can carry it: times are ISO 8601 text."""
_SHARES = (0.5, 0.9, 0.95, 0.99)
_PERCENTILES = ("latency_p50_ns", "latency_p90_ns", "latency_p95_ns", "latency_p99_ns")
SUMMARIES = ("sample_count", *_PERCENTILES, "latency_mean_ns", "latency_std_ns")
"""Columns that are calculated from the samples, or that a tool gives instead of samples."""
FloatArray = NDArray[np.float64]
FROM_SEVERAL = ("clock_max_mhz", "governor")
"""Read before and after the repeat, and once when the device was probed; the first known counts."""
_Convert = Callable[[Any], object]


def _word(value: Enum | None) -> object:
    return None if value is None else value.value


def _list(values: Iterable[object] | None) -> object:
    if values is None:
        return None
    return [value.value if isinstance(value, Enum) else value for value in values]


@functools.lru_cache(maxsize=4096)
def options_text(options: Options) -> str:
    """Options as the table stores them: sorted JSON."""
    return canonical_json(dict(options))


_CONVERT_COLUMN: Mapping[str, _Convert] = {
    "samples_ns": lambda samples: list(samples) or None,
    "packages": lambda packages: list(packages) or None,
    "runtime_settings": options_text,
    "worker_affinity": affinity_text,
}


def _convert(column: Column) -> _Convert | None:
    """How a value is stored; `None` for text and numbers, which are stored as they are."""
    of_type = _list if isinstance(column.dtype, pl.List) else _word if column.values else None
    return _CONVERT_COLUMN.get(column.name, of_type)


_FIELDS = tuple(
    (column.name, *column.field.rpartition(".")[::2], _convert(column))
    for column in COLUMNS
    if column.field is not None
)
_PARTS = tuple(dict.fromkeys(part for _, part, _, _ in _FIELDS))
"""Parts of a measurement that have columns; "" is the measurement itself."""
_PLAIN = {
    part: tuple((name, field) for name, at, field, convert in _FIELDS if at == part and not convert)
    for part in _PARTS
}
_CONVERTED = {
    part: tuple(
        (name, field, convert) for name, at, field, convert in _FIELDS if at == part and convert
    )
    for part in _PARTS
}
_NOTHING_MEASURED: Row = {name: None for name, _, _, _ in _FIELDS}


def measured_columns(measurement: Measurement) -> Row:
    """Every column that a measurement gives, as they are stored; unknown values are `None`."""
    columns = dict(_NOTHING_MEASURED)
    for part in _PARTS:
        source = getattr(measurement, part) if part else measurement
        if source is None:
            continue
        for name, field in _PLAIN[part]:
            columns[name] = getattr(source, field)
        for name, field, convert in _CONVERTED[part]:
            columns[name] = convert(getattr(source, field))
    samples_ns, summary = measurement.samples_ns, measurement.summary
    # What `latency_p50_ns` is; `None` without a latency.
    stated = None if summary is None else summary.statistic
    found = Statistic.MEDIAN if samples_ns else stated
    columns["statistic"] = _word(found)
    columns |= _design(measurement)
    columns["host_overhead_ns"] = host_overhead_ns(samples_ns, measurement.device_samples_ns)
    if samples_ns or summary is None:
        return columns | summarise(samples_ns)
    return columns | _summary_columns(summary)


def _design(measurement: Measurement) -> Row:
    """How the samples lie in time; `None` if a tool or a source gives none."""
    blocks = measurement.blocks
    design = Design.ROUNDS if blocks else Design.ISOLATED if measurement.samples_ns else None
    return {
        "design": _word(design),
        "block_starts_ns": [block.start_ns for block in blocks] or None,
        "block_sample_counts": [block.samples for block in blocks] or None,
        "block_medians_ns": block_medians(measurement) or None,
        "left_out_ns": [ns for block in blocks for ns in block.left_out_ns] or None,
    }


def block_medians(measurement: Measurement) -> list[int]:
    """Median of the samples of each block in whole nanoseconds, as a sample is; may be empty."""
    ends = list(accumulate(block.samples for block in measurement.blocks))
    blocks = (measurement.samples_ns[start:end] for start, end in pairwise((0, *ends)))
    return [round(median(block)) for block in blocks]


def condition_columns(measurement: Measurement, facts: DeviceFacts | None) -> Row:
    """The columns that several sources may give; `facts` is `None` if the device did not answer."""
    given = (measurement.conditions_before, measurement.conditions_after, facts)
    sources = [source for source in given if source is not None]
    return {
        name: next((v for source in sources if (v := getattr(source, name)) is not None), None)
        for name in FROM_SEVERAL
    }


def summarise(samples_ns: Sequence[int]) -> dict[str, float | int | None]:
    """Count, percentiles, mean and standard deviation (n - 1) of one process's samples.

    Percentiles interpolate linearly (NumPy's default); everything is `None`
    without samples, the deviation with fewer than two.
    """
    if not samples_ns:
        return dict.fromkeys(SUMMARIES)
    samples = np.sort(np.asarray(samples_ns, dtype=np.float64))
    n = len(samples_ns)
    # NumPy's percentile, mean and std give the same values and take 60 microseconds more.
    mean = float(np.add.reduce(samples)) / n
    squares = float(np.add.reduce(np.square(samples - mean)))
    percentiles = (_percentile(samples, share) for share in _SHARES)
    return {
        "sample_count": n,
        **dict(zip(_PERCENTILES, percentiles, strict=True)),
        "latency_mean_ns": mean,
        "latency_std_ns": math.sqrt(squares / (n - 1)) if n > 1 else None,
    }


def _percentile(ordered: FloatArray, share: float) -> float:
    """Interpolates linearly between the two nearest samples."""
    place = share * (len(ordered) - 1)
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (high - low) * (place - below)


def _summary_columns(summary: ToolSummary) -> Row:
    """The columns of `summarise`, from a tool's summary if the tool kept no samples."""
    times_ns = (
        summary.latency_ns, summary.p90_ns, summary.p95_ns, summary.p99_ns, summary.mean_ns,
        summary.std_ns,
    )  # fmt: skip
    values = (None if time_ns is None else float(time_ns) for time_ns in times_ns)
    return dict(zip(SUMMARIES, (summary.count, *values), strict=True))
