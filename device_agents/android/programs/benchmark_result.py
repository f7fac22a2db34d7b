"""The result file of newer builds of `benchmark_model`: a proto2 message.

Source: field numbers of tflite/tools/benchmark/proto/benchmark_result.proto as of TensorFlow 2.20
and LiteRT; times in milliseconds, sizes in kilobytes, all stored as 32-bit floats.
"""

from collections.abc import Iterator, Mapping

from fleetrank.device_agents.android.programs.benchmark_text import BenchmarkFigures, judged
from fleetrank.device_agents.android.programs.program_text import not_a_result
from fleetrank.foundation.protobuf import fields_of, floats_of, spans_of
from fleetrank.foundation.units import NS_PER_MS

_PARTS: Mapping[int, tuple[str, ...]] = {
    2: ("mean", "min", "max", "std", "median", "p5", "p95", "init", "first", "warmup"),
    3: ("init_kb", "overall_kb", "peak_mb"),
    4: ("model_mb", "num_runs", "num_warmup_runs", "mb_per_s"),
}
"""The messages of latency, memory and the rest by number, and their fields from number 1 on."""
_BYTES_PER_KB = 1024
_COUNTED = ("median", "p95", "min", "max")
"""The program's clock counts microseconds; further digits are rounding errors of the float."""


def read_result(content: bytes) -> BenchmarkFigures:
    """Reads the result file of one run.

    Raises:
        BadOutputError: the file is damaged, or lacks the latency.
    """
    try:
        latency, memory, misc = _parts(content)
    except ValueError as error:
        raise not_a_result(f"the result file is damaged: {error}") from error
    if "mean" not in latency or "num_runs" not in misc:
        raise not_a_result("the result file lacks the mean or the number of runs")
    ns = {name: ms * NS_PER_MS for name, ms in latency.items()}
    ns |= {name: round(ns[name], -3) or ns[name] for name in _COUNTED if name in ns}
    grown = [memory[name] * _BYTES_PER_KB if name in memory else None for name in _PARTS[3][:2]]
    n_warmup = int(misc.get("num_warmup_runs", 0))
    return judged(ns, int(misc["num_runs"]), n_warmup, (grown[0], grown[1]))


def _parts(content: bytes) -> Iterator[dict[str, float]]:
    """The fields of each message that are set: in proto2 a missing field is not zero."""
    found: dict[int, dict[str, float]] = {part: {} for part in _PARTS}
    for part, span in spans_of(content, (0, len(content))):
        names = _PARTS.get(part, ())
        for number, value in (*floats_of(content, span), *fields_of(content, span)):
            if not 1 <= number <= len(names) or isinstance(value, tuple):
                continue
            name = names[number - 1]
            # A field of another type than its own is unknown, as for protobuf itself.
            if isinstance(value, int) == (name.startswith("num_") or name.endswith("_kb")):
                found[part][name] = float(value - 2**64 if value >= 2**63 else value)
    return iter(found.values())
