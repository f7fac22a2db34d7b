"""Stands in for ONNX Runtime's `onnxruntime_perf_test`.

Source: onnxruntime/test/perftest/performance_runner.{h,cc} of 1.21; the other version prints the
mean in the words of later versions and writes no result file.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleetrank.device_agents.virtual_phone.imitation.command import (
    ImitatedOutput,
    Surroundings,
    text_of,
)
from fleetrank.device_agents.virtual_phone.imitation.inference import (
    InferenceSpec,
    open_inference,
    percentile,
)
from fleetrank.foundation.errors import FleetError

_WITH_VALUE = frozenset("emrtxycofFpTCiRSd")
_WITHOUT_VALUE = frozenset("IDAMsvPgnlqz")
_USAGE = "perf_test [options...] model_path [result_file]\n"
_CPU_PERCENT = 95
_PERCENTILES = (50, 90, 95, 99, 99.9)


@dataclass(slots=True)
class _Asked:
    values: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    unknown: str | None = None


def run(argv: Sequence[str], surroundings: Surroundings) -> ImitatedOutput:
    """Behaves as the program does with these arguments."""
    asked = _parse(argv)
    if asked.unknown is not None or not asked.files:
        return _failed(f"ERROR: Unknown command line flag '{asked.unknown}'\n{_USAGE}")
    backend = asked.values.get("e", "cpu")
    if backend != "cpu" and not surroundings.is_canned:
        return _failed(f"{backend} is not supported in this build\n")
    threads = int(asked.values.get("x", "0"))
    model = Path(asked.files[0])
    spec = InferenceSpec(
        runtime="onnx", model=model, backend=backend, threads=threads, argv=tuple(argv)
    )
    try:
        with open_inference(spec, surroundings) as inference:
            first_ns = inference.run()
            times_ns = _measure(inference.run, asked)
            load_ns, peak_bytes = inference.load_ns, inference.peak_bytes()
    except (FleetError, OSError) as error:
        shown = surroundings.shown(str(error))
        return _failed(f"Load model from {model.name} failed:Protobuf parsing failed. {shown}\n")
    text = _report(times_ns, threads=threads, load_ns=load_ns, first_ns=first_ns, peak=peak_bytes)
    name = model.stem
    rows = "".join(
        f"{name},{time_ns / 1e9:g},{peak_bytes},{_CPU_PERCENT},{number}\n"
        for number, time_ns in enumerate(times_ns)
    )
    return ImitatedOutput(
        text=text,
        other_version=text.replace("inference time cost: ", "inference time cost total: "),
        result_path=asked.files[1] if len(asked.files) > 1 else None,
        result=rows.encode(),
        appends=True,
    )


def _parse(argv: Sequence[str]) -> _Asked:
    asked = _Asked()
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            asked.files.append(word)
        elif (letter := word[1:]) in _WITH_VALUE:
            asked.values[letter] = next(words, "")
        elif letter not in _WITHOUT_VALUE:
            asked.unknown = letter
    return asked


def _measure(run_once: Callable[[], int], asked: _Asked) -> tuple[int, ...]:
    """Measures by number of runs, or until the time is over, as requested."""
    if asked.values.get("m", "duration") == "times":
        return tuple(run_once() for _ in range(int(asked.values.get("r", "1000"))))
    times_ns: list[int] = []
    limit_ns = float(asked.values.get("t", "600")) * 1e9
    while sum(times_ns) < limit_ns:
        times_ns.append(run_once())
    return tuple(times_ns)


def _report(
    times_ns: Sequence[int], *, threads: int, load_ns: int, first_ns: int, peak: int
) -> str:
    total_s = sum(times_ns) / 1e9
    shown = (("Min", min(times_ns)), ("Max", max(times_ns)))
    percentiles = tuple((f"P{p:g}".replace(".", ""), percentile(times_ns, p)) for p in _PERCENTILES)
    text = text_of(
        "onnxruntime_perf_test",
        threads=threads,
        load_s=load_ns / 1e9,
        first_ms=first_ns // 1_000_000,
        total_s=total_s,
        count=len(times_ns),
        mean_ms=statistics.fmean(times_ns) / 1e6,
        rate=len(times_ns) / total_s,
        peak_bytes=peak,
    )
    return text + "".join(
        f"{name} Latency: {ns / 1e9:g} s\n" for name, ns in (*shown, *percentiles)
    )


def _failed(text: str) -> ImitatedOutput:
    return ImitatedOutput(text=text, other_version=text, exit_code=1)
