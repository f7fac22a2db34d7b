"""The results that LiteRT 2's `benchmark_model` (CompiledModel) ends with.

A mean and no median, in steps of 10 us. Source: litert/tools/benchmark_litert_model.h of LiteRT
2.1, checked on published output.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleetrank.device_agents.android.programs.benchmark_text import BenchmarkFigures, Memory, judged
from fleetrank.device_agents.android.programs.program_text import (
    NUMBER,
    named_fields,
    not_a_result,
    to_latency_ns,
)
from fleetrank.device_agents.device_output import refuse_unlike_counts, refuse_unlike_means
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_US

_LABELS = {
    "Model initialization": "init", "Warmup (first)": "first", "Warmup (avg)": "warmup",
    "Inference (avg)": "mean", "Inference (min)": "min", "Inference (max)": "max",
    "Inference (std)": "std", "Init footprint": "init_mib", "Overall footprint": "overall_mib",
}  # fmt: skip
# The pattern includes the line end, because half a number also looks like a number.
_LINE = re.compile(
    rf"^(?:INFO: \[[^\]\n]*+\] )?({'|'.join(map(re.escape, _LABELS))}): ++({NUMBER})"
    r"(?: ms| MB)?(?: \(([0-9]{1,12}) runs\))?\r?\n",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Times, counts of runs and memory; not judged yet."""

    ns: Mapping[str, float]
    counts: Mapping[str, int]
    memory: Memory


def _find_block(text: str) -> _Block | None:
    """Finds the block of one run; `None` if the text has none, or only a part.

    Raises:
        BadOutputError: the text has the results of more than one run.
    """
    found = [(_LABELS[label], float(number), count) for label, number, count in _LINE.findall(text)]
    figures = {name: number for name, number, _ in found}
    if len(figures) < len(found):
        raise not_a_result("it has the results of more than one run")
    if not {"init", "mean"} <= set(figures):
        return None
    mib = [figures.pop(name, None) for name in ("init_mib", "overall_mib")]
    init, overall = (None if one is None else one * BYTES_PER_MIB for one in mib)
    return _Block(
        ns={name: ms * NS_PER_MS for name, ms in figures.items()},
        counts={name: int(count) for name, _, count in found if count},
        memory=(init, overall),
    )


_PHASE = "Running benchmark for "
"""Starts the warm-up section, then the timing section."""
_PHASE_OR_COUNT = re.compile(rf"^[^\n]*?(?:{_PHASE}|count=)[^\n]*+", re.MULTILINE)
_COUNT = re.compile(r"(?:^|\s)count=([0-9]{1,12})\b(.*)")
_OTHER_COUNTS = ("(microseconds): ", "(bytes): ")
"""Operator profiling prints `Timings (microseconds): count=...` and `Memory (bytes): count=...`."""
# The patterns include the line end, because half a number also looks like a number.
_CLOSINGS = (
    re.compile(
        rf"Inference timings in us: Init: (?P<init>{NUMBER}), First inference: "
        rf"(?P<first>{NUMBER}), Warmup \(avg\): {NUMBER}, "
        rf"Inference \(avg\): (?P<mean>{NUMBER})\r?\n"
    ),
    re.compile(
        rf"Average inference timings in us: Warmup: {NUMBER}, Init: (?P<init>{NUMBER}), "
        rf"(?:no stats|Inference): (?P<mean>{NUMBER})\r?\n"
    ),
)
_MEMORY = re.compile(
    r"(?:Memory footprint delta from the start of the tool|Peak memory footprint) \(MB\): "
    rf"init=({NUMBER}) overall=({NUMBER})"
)
"""Until 2020 the program called the same growth a peak; it divides its kilobytes by 1024.

Source: benchmark_model.cc of TensorFlow 2.2 and of LiteRT.
"""
_OF_RUNS = ("min", "max", "median", "p95", "std")
_OF_WARMUP = (("first", "curr"), ("first", "first"), ("warmup", "curr"), ("warmup", "avg"))
"""Figures and the fields of the warm-up that have them; of two, the later one counts."""


def read_text(text: str) -> BenchmarkFigures:
    """Reads the text of one run.

    Raises:
        BadOutputError: part of the text is missing, or a figure is not plausible.
    """
    closing = next((found for one in _CLOSINGS if (found := one.search(text))), None)
    if closing is not None:
        stated = {name: float(us) * NS_PER_US for name, us in closing.groupdict().items()}
        return _with_statistics(text, stated, _memory(text))
    block = _find_block(text)
    if block is None:
        raise not_a_result("the closing line with the timings is missing")
    printed, count = printed_count(text), block.counts.get("mean", 0)
    if printed is None:
        return judged(block.ns, count, block.counts.get("warmup", 0), block.memory)
    refuse_unlike_counts(count, printed)
    # Of a small network the block's own mean is one step: that of the statistics counts.
    return _with_statistics(text, {"init": block.ns["init"]}, block.memory)


def _with_statistics(text: str, stated: Mapping[str, float], memory: Memory) -> BenchmarkFigures:
    """The figures of the lines of statistics, with those of the end of the text."""
    phases = [{name: float(us) for name, us in fields.items()} for fields in _phases(text)]
    warmup, timed = ({name: us * NS_PER_US for name, us in one.items()} for one in phases)
    n_warmup, count = (int(one["count"]) for one in phases)
    ns = {**{name: timed[name] for name in _OF_RUNS if name in timed}, **stated}
    if "avg" in timed:
        ns.setdefault("mean", timed["avg"])
        refuse_unlike_means(
            *(to_latency_ns(one, 1, "the mean") for one in (ns["mean"], timed["avg"]))
        )
    elif "curr" in timed:
        # All runs are equal, or one run was made: the only figure is the newest.
        ns |= dict.fromkeys(("mean", "median", "p95"), timed["curr"]) | {"std": 0.0}
        if count < 2:
            del ns["std"]
    elif count:
        raise not_a_result("a line of statistics without figures")
    if n_warmup:
        ns = {name: warmup[field] for name, field in _OF_WARMUP if field in warmup} | ns
    return judged(ns, count, n_warmup, memory)


def printed_count(text: str) -> int | None:
    """The number of timed runs in the text; `None` if the text has no statistics."""
    try:
        _, timed = _phases(text)
    except BadOutputError:
        return None
    return int(timed["count"])


def _phases(text: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The fields of the warm-up statistics and of the timing statistics."""
    phases: list[Mapping[str, str] | None] = []
    for found in _PHASE_OR_COUNT.finditer(text):
        line = found[0]
        if _PHASE in line:
            phases.append(None)
        elif phases and phases[-1] is None and (fields := _statistics(line)):
            phases[-1] = fields
    complete = [fields for fields in phases if fields is not None]
    if len(phases) != 2 or len(complete) != 2:
        raise not_a_result(f"only {len(complete)} of the two lines of statistics exist")
    return complete[0], complete[1]


def _statistics(line: str) -> Mapping[str, str] | None:
    if any(other in line for other in _OTHER_COUNTS):
        return None
    found = _COUNT.search(line)
    return None if found is None else {"count": found[1], **named_fields(found[2])}


def _memory(text: str) -> Memory:
    found = _MEMORY.search(text)
    if found is None:
        return None, None
    init, overall = (float(value) * BYTES_PER_MIB for value in found.groups())
    return init, overall
