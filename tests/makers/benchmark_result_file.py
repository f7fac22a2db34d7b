"""The result file of `benchmark_model`, written by other code than what reads it."""

from collections.abc import Mapping

from fleetrank.device_agents.virtual_phone.imitation.protobuf_fields import (
    encode_floats,
    encode_integers,
    encode_messages,
)

_PARTS = {"latency_metrics": 2, "memory_metrics": 3, "misc_metrics": 4}
_FIELDS = {
    "latency_metrics": "avg_ms min_ms max_ms stddev_ms median_ms p5_ms p95_ms init_ms "
    "first_inference_ms average_warm_up_ms",
    "memory_metrics": "init_footprint_kb overall_footprint_kb peak_mem_mb",
    "misc_metrics": "model_size_mb num_runs num_warmup_runs model_throughput_in_mb_per_sec",
}
"""In the order of their numbers, from 1."""


def encode_result(parts: Mapping[str, Mapping[str, float]]) -> bytes:
    return encode_messages({_PARTS[name]: _encode(name, part) for name, part in parts.items()})


def _encode(part: str, values: Mapping[str, float]) -> bytes:
    numbers = {name: number for number, name in enumerate(_FIELDS[part].split(), start=1)}
    whole = {name for name in values if name.endswith("_kb") or name.startswith("num_")}
    return encode_floats(
        {numbers[name]: value for name, value in values.items() if name not in whole}
    ) + encode_integers({numbers[name]: int(values[name]) for name in whole})
