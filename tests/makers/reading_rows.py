"""Attempts of prompts and segments, from which the time to read a text follows."""

from collections.abc import Iterable, Iterator

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


def crossing_rows(per_token: float, **place: str) -> Iterator[dict[str, object]]:
    """Prompts that take longer per token the longer they are, and a segment."""
    for length in (128, 256, 512, 1024, 2048):
        yield from reading_rows(f"prefill@{length}", length * (1 + length / 2000), **place)
    yield from reading_rows(SEGMENT, 128 * per_token, **place)
