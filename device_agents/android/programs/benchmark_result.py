"""The result file of newer builds of `benchmark_model`: a proto2 message, described in code.

Source: field numbers of tflite/tools/benchmark/proto/benchmark_result.proto as of TensorFlow 2.20
and LiteRT; times in milliseconds, sizes in kilobytes, all stored as 32-bit floats.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from fleetrank.device_agents.android.programs.program_text import not_a_result, to_latency_ns, to_ns
from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.device_output import MEMORY_BYTES
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.foundation.units import NS_PER_MS, NS_PER_US
from fleetrank.foundation.vocabulary import Statistic


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFigures:
    """The figures of one run, in the project's units.

    Percentiles are the sample at index floor(n * p / 100) of the sorted ones, not interpolated
    (so the median of two is the larger). Source: `StatWithPercentiles` of TensorFlow's
    stats_calculator.h.

    Attributes:
        min_ns: of the timed runs; the same for `max_ns`.
        warmup_runs: runs after the first inference, which the program counts as a warm-up run.
        init_memory_bytes: growth of ru_maxrss from the program's start until the model was ready.
        overall_memory_bytes: the same growth until the last run.
    """

    summary: ToolSummary
    min_ns: int | None
    max_ns: int | None
    init_ns: int | None
    first_inference_ns: int | None
    warmup_ns: int | None
    warmup_runs: int | None
    init_memory_bytes: int | None
    overall_memory_bytes: int | None


def grown_bytes(n_bytes: float) -> int | None:
    """A growth of ru_maxrss; zero or less is not a reading.

    The program's process inherits the high-water mark of its parent: growth below this mark is not
    visible. No model runs without memory.

    Raises:
        BadOutputError: more memory than any computer has.
    """
    if n_bytes <= 0:
        return None
    MEMORY_BYTES.require(n_bytes, f"{n_bytes:g} bytes")
    return round(n_bytes)


_FLOAT, _INT32, _INT64, _STRING = 2, 5, 3, 9
"""`FieldDescriptorProto.Type` of the protobuf library."""

_MESSAGES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "LatencyMetrics": {
        "avg_ms": (1, _FLOAT), "min_ms": (2, _FLOAT), "max_ms": (3, _FLOAT),
        "stddev_ms": (4, _FLOAT), "median_ms": (5, _FLOAT), "p5_ms": (6, _FLOAT),
        "p95_ms": (7, _FLOAT), "init_ms": (8, _FLOAT), "first_inference_ms": (9, _FLOAT),
        "average_warm_up_ms": (10, _FLOAT),
    },
    "MemoryMetrics": {
        "init_footprint_kb": (1, _INT64), "overall_footprint_kb": (2, _INT64),
        "peak_mem_mb": (3, _FLOAT),
    },
    "MiscMetrics": {
        "model_size_mb": (1, _FLOAT), "num_runs": (2, _INT32), "num_warmup_runs": (3, _INT32),
        "model_throughput_in_mb_per_sec": (4, _FLOAT),
    },
}  # fmt: skip
_PARTS = {"latency_metrics": 2, "memory_metrics": 3, "misc_metrics": 4}
_PACKAGE = "tflite.tools.benchmark"
_BYTES_PER_KB = 1024


class _Message(Protocol):
    """A message of the protobuf library; its fields are read by name."""

    def HasField(self, name: str) -> bool: ...  # noqa: N802 - the library's name


def read_result(content: bytes) -> BenchmarkFigures:
    """Reads the result file of one run.

    Raises:
        BadOutputError: the file is damaged, or lacks the latency.
        MissingLibraryError: protobuf is not installed; the text has the same figures.
    """
    result = _parse(content)
    latency, memory, misc = (_fields(result, part) for part in _PARTS)
    if "avg_ms" not in latency or "num_runs" not in misc:
        raise not_a_result("the result file lacks the mean or the number of runs")
    warmup_runs, warmup_ns = _warmup(latency, misc)
    return BenchmarkFigures(
        summary=_summary(latency, int(misc["num_runs"])),
        min_ns=_extreme(latency, "min_ms"),
        max_ns=_extreme(latency, "max_ms"),
        init_ns=_optional(latency, "init_ms"),
        first_inference_ns=_optional(latency, "first_inference_ms"),
        warmup_ns=warmup_ns,
        warmup_runs=warmup_runs,
        init_memory_bytes=_memory_bytes(memory, "init_footprint_kb"),
        overall_memory_bytes=_memory_bytes(memory, "overall_footprint_kb"),
    )


def _parse(content: bytes) -> _Message:
    result_class = _result_class()
    errors = importlib.import_module("google.protobuf.message")
    try:
        message: _Message = result_class.FromString(content)
    except (errors.DecodeError, UnicodeDecodeError) as error:
        raise not_a_result(f"the result file is damaged: {error}") from error
    return message


def _fields(result: _Message, part: str) -> dict[str, float]:
    """Returns the fields that are set: in proto2 a missing field is not zero."""
    message = getattr(result, part)
    names = _MESSAGES[message.DESCRIPTOR.name]
    return {name: float(getattr(message, name)) for name in names if message.HasField(name)}


def _summary(latency: Mapping[str, float], count: int) -> ToolSummary:
    if count < 1:
        raise not_a_result("no run was timed")
    mean_ns = to_latency_ns(latency["avg_ms"], NS_PER_MS, "the mean")
    median = latency.get("median_ms")
    p95 = latency.get("p95_ms")
    return ToolSummary(
        count=count,
        latency_ns=mean_ns if median is None else _whole_us(median, "the median"),
        # Old builds print only the mean.
        statistic=Statistic.MEAN if median is None else Statistic.MEDIAN,
        mean_ns=mean_ns,
        std_ns=_optional(latency, "stddev_ms"),
        p95_ns=None if p95 is None else _whole_us(p95, "the 95th percentile"),
    )


def _extreme(latency: Mapping[str, float], name: str) -> int | None:
    value = latency.get(name)
    # Rounded in the same way as the median and the percentile, so their order is kept.
    return None if value is None else round(to_ns(value, NS_PER_MS, name) / NS_PER_US) * NS_PER_US


def _whole_us(value_ms: float, what: str) -> int:
    """The program's clock counts microseconds; further digits are rounding errors of the float."""
    ns = to_latency_ns(value_ms, NS_PER_MS, what)
    return round(ns / NS_PER_US) * NS_PER_US or ns


def _optional(latency: Mapping[str, float], name: str) -> int | None:
    value = latency.get(name)
    return None if value is None else to_ns(value, NS_PER_MS, name)


def _warmup(
    latency: Mapping[str, float], misc: Mapping[str, float]
) -> tuple[int | None, int | None]:
    count, mean = misc.get("num_warmup_runs"), latency.get("average_warm_up_ms")
    first = latency.get("first_inference_ms")
    if count is None or mean is None or first is None or count < 1:
        return None, None
    return int(count) - 1, max(0, to_ns(mean * count - first, NS_PER_MS, "the warm-up time"))


def _memory_bytes(memory: Mapping[str, float], name: str) -> int | None:
    value = memory.get(name)
    return None if value is None else grown_bytes(value * _BYTES_PER_KB)


@cache
def _result_class():  # type: ignore[no-untyped-def]  # the library has no types
    """The class of the message, from a description in this code; no generated code is needed."""
    try:
        descriptor_pb2 = importlib.import_module("google.protobuf.descriptor_pb2")
        pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
        factory = importlib.import_module("google.protobuf.message_factory")
    except ImportError as error:
        raise MissingLibraryError(
            f"protobuf cannot be imported: {error}", "pip install 'fleetrank[android]'"
        ) from error
    file = descriptor_pb2.FileDescriptorProto(
        name="benchmark_result.proto", package=_PACKAGE, syntax="proto2"
    )
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, (number, kind) in fields.items():
            message.field.add(name=name, number=number, type=kind, label=1)
    result = file.message_type.add(name="BenchmarkResult")
    result.field.add(name="name", number=1, type=_STRING, label=1)
    for (name, number), message_name in zip(_PARTS.items(), _MESSAGES, strict=True):
        type_name = f".{_PACKAGE}.{message_name}"
        result.field.add(name=name, number=number, type=11, label=1, type_name=type_name)
    pool.Add(file)
    return factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.BenchmarkResult"))
