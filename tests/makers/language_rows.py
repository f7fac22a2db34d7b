"""Made-up results of language models for tests: twelve decoders on a few platforms, by a roofline.

Prompts are bound by arithmetic and steps by bytes, so that the two rank models differently on a
platform whose bandwidth is small beside its arithmetic.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fleet_rows import shared_facts, store_rows

from fleetrank.foundation.workload import Workload, WorkloadKind

SWEEP = "text-20261122T080000-cd34"
OF_TOKENS = ("tokens", "tokens/request", "transfer/phases")
"""Tables that need rows of workloads with tokens."""
WORKLOADS = ("prefill@128", "prefill@512", "decode@128", "decode@512")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """`weights`: multiplied ones, in millions; `cache`: values of one slot, keys and values."""

    name: str
    family: str
    weights: float
    cache: int
    layers: int


DECODERS = tuple(
    Decoder(name=name, family=family, weights=weights, cache=cache, layers=layers)
    for name, family, weights, cache, layers in (
        ("stories260k", "llama", 0.26, 320, 5),
        ("stories15m", "llama", 15.2, 3456, 6),
        ("stories42m", "llama", 41.7, 8192, 8),
        ("stories110m", "llama", 109.5, 18432, 12),
        ("gpt2", "gpt", 123.5, 18432, 12),
        ("opt_125m", "opt", 123.6, 18432, 12),
        ("opt_350m", "opt", 329.0, 49152, 24),
        ("pythia_70m", "neox", 44.7, 6144, 6),
        ("pythia_160m", "neox", 123.7, 18432, 12),
        ("smollm_135m", "llama", 134.5, 11520, 30),
        ("smollm_360m", "llama", 361.8, 20480, 32),
        ("qwen25_05b", "llama", 494.0, 6144, 24),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    device: str
    tier: str
    gflops: float
    gbytes_s: float
    origin: str = "measured"


MACHINES = (
    Machine(device="xeon", tier="cpu", gflops=90.0, gbytes_s=12.0),
    Machine(device="epyc", tier="cpu", gflops=40.0, gbytes_s=20.0),
    Machine(device="pixel-8", tier="edge", gflops=25.0, gbytes_s=9.0),
    Machine(device="galaxy-s22", tier="edge", gflops=30.0, gbytes_s=4.0),
)


def write_language_results(
    results: Path,
    *,
    decoders: Sequence[Decoder] = DECODERS,
    machines: Sequence[Machine] = MACHINES,
    workloads: Sequence[str] = WORKLOADS,
    repeats: int = 5,
    sweep: str = SWEEP,
) -> Path:
    """Writes measurements and the sweep's record as the store does, and returns the folder."""
    rng = np.random.default_rng(3)
    rows = [
        _row(decoder, machine, Workload.parse(workload), repeat, quirk, rng) | {"sweep_id": sweep}
        for machine in machines
        for decoder in decoders
        for workload in workloads
        for quirk in [float(np.exp(rng.normal(0, 0.15)))]
        for repeat in range(repeats)
    ]
    return store_rows(results, rows, sweep)


def _row(
    decoder: Decoder,
    machine: Machine,
    workload: Workload,
    repeat: int,
    quirk: float,
    rng: np.random.Generator,
) -> dict[str, object]:
    is_decode = workload.kind is WorkloadKind.DECODE
    length = workload.length or 1
    tokens = 1 if is_decode else length
    slots = length
    passes = 1.5 if workload.kind is WorkloadKind.SEGMENT else 1.0
    macs = passes * tokens * (decoder.weights * 1e6 + decoder.cache * slots)
    weight_bytes, state_bytes = int(decoder.weights * 4e6), decoder.cache * slots * 4
    moved = weight_bytes + state_bytes
    seconds = max(2 * macs / (machine.gflops * 1e9), moved / (machine.gbytes_s * 1e9))
    process_ns = 1e9 * quirk * (seconds + 5e-6 * decoder.layers) * np.exp(rng.normal(0, 0.03))
    samples = (process_ns * np.exp(rng.normal(0.0, 0.01, 30))).astype(np.int64)
    platform = f"{machine.device}/onnx/cpu/eager/fp32/b1/t1/afree/{{}}"
    name, parameters = decoder.name, decoder.weights * 1e6
    return shared_facts(name, decoder.family, parameters, repeat, samples, machine.origin) | {
        "cell_key": f"{name} {workload} @{platform}", "has_attention": True,
        "macs": int(macs), "flops": int(2 * macs), "artifact_sha256": "b" * 64,
        "artifact_bytes": weight_bytes, "device": machine.device,
        "device_model": f"model of {machine.device}", "tier": machine.tier,
        "platform_key": platform, "runtime": "onnx", "threads": 1, "workload": str(workload),
        "prompt_tokens": workload.prompt_tokens, "context_tokens": workload.context_tokens,
        "tokens_per_inference": workload.tokens_per_sample(1), "vocabulary": 32_000,
        "model_context_tokens": 4096, "weight_bytes": weight_bytes, "state_bytes": state_bytes,
        "bytes_moved": moved, "peak_memory_bytes": moved + (20 << 20),
        "load_peak_memory_bytes": 2 * moved, "runtime_version": "1.31.1",
        "energy_mj": 1e3 * 5.0 * float(np.percentile(samples, 50)) / 1e9,
    }  # fmt: skip


SEGMENT = "segment@128+k8+n16"


def reading_rows(
    workload: str,
    ms: float,
    *,
    model: str = "opt",
    device: str = "d1",
    noise: Iterable[float] = (1, 1, 1, 1, 1),
    **more: object,
) -> Iterator[dict[str, object]]:
    """The repeats of one cell; `noise` has a factor for each."""
    key = {"cell_key": f"{model} {workload} {device} b{more.get('batch', 1)}"}
    for repeat, factor in enumerate(noise):
        yield key | {
            "model": model, "device": device, "workload": workload, "repeat": repeat,
            "latency_p50_ns": ms * 1e6 * factor, "model_context_tokens": 1024,
            "peak_memory_bytes": 50 << 20, "flops": 1000,
        } | more  # fmt: skip
