"""Parses the text of `benchmark_model`, from TensorFlow 1.12 to LiteRT 2.

Known variants: with or without `INFO: ` before lines; everything on standard error or not; with
and without percentiles; `count=0`; `count=5 curr=7(all same)`; scientific numbers; the last line
of TensorFlow 1; LiteRT 2's block of results, with or without lines of statistics.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from fleetrank.device_agents.android.programs.phone_program import (
    EXTERNAL,
    NUMBER,
    named_fields,
    not_a_result,
    to_latency_ns,
    to_ns,
)
from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.device_output import (
    MEMORY_BYTES,
    refuse_unlike_counts,
    refuse_unlike_means,
)
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.foundation.binary import fields_of, floats_of, spans_of
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, NS_PER_MS, NS_PER_US, Statistic

# The result file of newer builds of `benchmark_model`: a proto2 message.
#
# Source: field numbers of tflite/tools/benchmark/proto/benchmark_result.proto as of TensorFlow
# 2.20 and LiteRT; times in milliseconds, sizes in kilobytes, all stored as 32-bit floats.


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


_PARTS: Mapping[int, tuple[str, ...]] = {
    2: (
        "avg_ms", "min_ms", "max_ms", "stddev_ms", "median_ms", "p5_ms", "p95_ms", "init_ms",
        "first_inference_ms", "average_warm_up_ms",
    ),
    3: ("init_footprint_kb", "overall_footprint_kb", "peak_mem_mb"),
    4: ("model_size_mb", "num_runs", "num_warmup_runs", "model_throughput_in_mb_per_sec"),
}  # fmt: skip
"""The messages of latency, memory and the rest by number, and their fields from number 1 on."""
_BYTES_PER_KB = 1024


def read_result(content: bytes) -> BenchmarkFigures:
    """Reads the result file of one run.

    Raises:
        BadOutputError: the file is damaged, or lacks the latency.
    """
    try:
        latency, memory, misc = _parts(content)
    except ValueError as error:
        raise not_a_result(f"the result file is damaged: {error}") from error
    if "avg_ms" not in latency or "num_runs" not in misc:
        raise not_a_result("the result file lacks the mean or the number of runs")
    warmup_runs, warmup_ns = _result_warmup(latency, misc)
    return BenchmarkFigures(
        summary=_result_summary(latency, int(misc["num_runs"])),
        min_ns=_result_extreme(latency, "min_ms"),
        max_ns=_result_extreme(latency, "max_ms"),
        init_ns=_optional(latency, "init_ms"),
        first_inference_ns=_optional(latency, "first_inference_ms"),
        warmup_ns=warmup_ns,
        warmup_runs=warmup_runs,
        init_memory_bytes=_memory_bytes(memory, "init_footprint_kb"),
        overall_memory_bytes=_memory_bytes(memory, "overall_footprint_kb"),
    )


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


def _result_summary(latency: Mapping[str, float], count: int) -> ToolSummary:
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


def _result_extreme(latency: Mapping[str, float], name: str) -> int | None:
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


def _result_warmup(
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


# Parses the block of results that LiteRT 2's `benchmark_model` (CompiledModel) ends with.
#
# Source: litert/tools/benchmark_litert_model.h of LiteRT 2.1, checked on published output.

_INIT, _FIRST, _WARMUP, _MEAN = (
    "Model initialization", "Warmup (first)", "Warmup (avg)", "Inference (avg)",
)  # fmt: skip
_MIN, _MAX, _STD = "Inference (min)", "Inference (max)", "Inference (std)"
_INIT_MEMORY, _OVERALL_MEMORY = "Init footprint", "Overall footprint"
_LABELS = (_INIT, _FIRST, _WARMUP, _MEAN, _MIN, _MAX, _STD, _INIT_MEMORY, _OVERALL_MEMORY)
# The pattern includes the line end, because half a number also looks like a number.
_LINE = re.compile(
    rf"^(?:INFO: \[[^\]\n]*+\] )?({'|'.join(map(re.escape, _LABELS))}): ++({NUMBER})"
    r"(?: ms| MB)?(?: \(([0-9]{1,12}) runs\))?\r?\n",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LitertBlock:
    """The block's figures as text, and the counts of runs, by label; not judged yet."""

    figures: Mapping[str, str]
    counts: Mapping[str, int]

    @property
    def count(self) -> int:
        """The number of timed runs; 0 if the block has none."""
        return self.counts.get(_MEAN, 0)

    @property
    def init_ns(self) -> int | None:
        """Time until the model was ready, in steps of 10 us."""
        return self._ns(_INIT)

    @property
    def memory_bytes(self) -> tuple[int | None, int | None]:
        """Growth until the model was ready and until the end, as in `BenchmarkFigures`."""
        return self._bytes(_INIT_MEMORY), self._bytes(_OVERALL_MEMORY)

    def to_figures(self) -> BenchmarkFigures:
        """All figures of the block alone: it has a mean and no median, in steps of 10 us.

        Raises:
            BadOutputError: no run was timed, or a figure is not plausible.
        """
        if self.count == 0:
            raise not_a_result("no run was timed")
        mean_ns = to_latency_ns(self.figures[_MEAN], NS_PER_MS, "the mean")
        first_ns, warmup_ns = self._ns(_FIRST), self._ns(_WARMUP)
        n_warmup = self.counts.get(_WARMUP, 0)
        has_warmup = n_warmup > 0 and None not in (first_ns, warmup_ns)
        init_memory, overall_memory = self.memory_bytes
        return BenchmarkFigures(
            summary=ToolSummary(
                count=self.count,
                latency_ns=mean_ns,
                statistic=Statistic.MEAN,
                mean_ns=mean_ns,
                std_ns=self._ns(_STD),
            ),
            min_ns=self._ns(_MIN),
            max_ns=self._ns(_MAX),
            init_ns=self.init_ns,
            first_inference_ns=first_ns,
            warmup_ns=max(0, (warmup_ns or 0) * n_warmup - (first_ns or 0)) if has_warmup else None,
            warmup_runs=n_warmup - 1 if has_warmup else None,
            init_memory_bytes=init_memory,
            overall_memory_bytes=overall_memory,
        )

    def _ns(self, label: str) -> int | None:
        text = self.figures.get(label)
        return None if text is None else to_ns(text, NS_PER_MS, label)

    def _bytes(self, label: str) -> int | None:
        text = self.figures.get(label)
        return None if text is None else grown_bytes(float(text) * BYTES_PER_MIB)


def find_litert_block(text: str) -> LitertBlock | None:
    """Finds the block of one run; `None` if the text has none, or only a part.

    Raises:
        BadOutputError: the text has the results of more than one run.
    """
    found = _LINE.findall(text)
    figures = {label: number for label, number, _ in found}
    if len(figures) < len(found):
        raise not_a_result("it has the results of more than one run")
    if not {_INIT, _MEAN} <= set(figures):
        return None
    return LitertBlock(
        figures=figures, counts={label: int(count) for label, _, count in found if count}
    )


_PHASE = "Running benchmark for "
"""Starts the warm-up section, then the timing section."""
_PHASE_OR_COUNT = re.compile(rf"^[^\n]*?(?:{_PHASE}|count=)[^\n]*+", re.MULTILINE)
_COUNT = re.compile(r"(?:^|\s)count=([0-9]{1,12})\b(.*)")
_OTHER_COUNTS = ("(microseconds): ", "(bytes): ")
"""Operator profiling prints `Timings (microseconds): count=...` and `Memory (bytes): count=...`."""
# The pattern includes the line end, because half a number also looks like a number.
_CLOSING = re.compile(
    rf"Inference timings in us: Init: ({NUMBER}), First inference: ({NUMBER}), "
    rf"Warmup \(avg\): {NUMBER}, Inference \(avg\): ({NUMBER})\r?\n"
)
_CLOSING_OLD = re.compile(
    rf"Average inference timings in us: Warmup: {NUMBER}, Init: ({NUMBER}), "
    rf"(?:no stats|Inference): ({NUMBER})\r?\n"
)
_MEMORY = re.compile(
    r"(?:Memory footprint delta from the start of the tool|Peak memory footprint) \(MB\): "
    rf"init=({NUMBER}) overall=({NUMBER})"
)
"""Until 2020 the program called the same growth a peak; it divides its kilobytes by 1024.

Source: benchmark_model.cc of TensorFlow 2.2 and of LiteRT.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closing:
    init_ns: int | None
    first_inference_ns: int | None
    mean_ns: int


def read_text(text: str) -> BenchmarkFigures:
    """Reads the text of one run.

    Raises:
        BadOutputError: part of the text is missing, or a figure is not plausible.
    """
    closing = _closing(text)
    if closing is not None:
        return _figures(text, closing, _memory(text))
    block = find_litert_block(text)
    if block is None:
        raise not_a_result("the closing line with the timings is missing")
    if printed_count(text) is None:
        return block.to_figures()
    return _figures(text, _closing_of_block(text, block), block.memory_bytes)


def _figures(
    text: str, closing: _Closing, memory_bytes: tuple[int | None, int | None]
) -> BenchmarkFigures:
    """The figures of the lines of statistics, with the rest from the end of the text."""
    warmup, timed = _phases(text)
    summary = _summary(timed, closing.mean_ns)
    first_ns = closing.first_inference_ns
    if first_ns is None:
        first_ns = _first(warmup)
    warmup_runs, warmup_ns = _warmup(warmup, first_ns)
    return BenchmarkFigures(
        summary=summary,
        min_ns=_extreme(timed, "min"),
        max_ns=_extreme(timed, "max"),
        init_ns=closing.init_ns,
        first_inference_ns=first_ns,
        warmup_ns=warmup_ns,
        warmup_runs=warmup_runs,
        init_memory_bytes=memory_bytes[0],
        overall_memory_bytes=memory_bytes[1],
    )


def _closing_of_block(text: str, block: LitertBlock) -> _Closing:
    """What LiteRT 2 prints in place of the closing line; the mean is that of the statistics.

    The block's own mean has steps of 10 us, which is the whole latency of a small network.
    """
    _, timed = _phases(text)
    refuse_unlike_counts(block.count, int(timed["count"]))
    mean = timed.get("avg", timed.get("curr", "0"))
    return _Closing(
        init_ns=block.init_ns,
        first_inference_ns=None,
        mean_ns=to_latency_ns(mean, NS_PER_US, "the mean"),
    )


def printed_count(text: str) -> int | None:
    """The number of timed runs in the text; `None` if the text has no statistics."""
    try:
        _, timed = _phases(text)
    except BadOutputError:
        return None
    return int(timed["count"])


def _extreme(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name)
    return None if text is None else to_ns(text, NS_PER_US, f"the {name}imum")


def _closing(text: str) -> _Closing | None:
    if found := _CLOSING.search(text):
        init, first, mean = found.groups()
    elif found := _CLOSING_OLD.search(text):
        (init, mean), first = found.groups(), None
    else:
        return None
    return _Closing(
        init_ns=to_ns(init, NS_PER_US, "the initialisation time"),
        first_inference_ns=None if first is None else to_ns(first, NS_PER_US, "the first run"),
        mean_ns=to_latency_ns(mean, NS_PER_US, "the mean"),
    )


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


def _summary(fields: Mapping[str, str], mean_ns: int) -> ToolSummary:
    count = int(fields["count"])
    if count == 0:
        raise not_a_result("no run was timed (count=0)")
    if "avg" not in fields:
        # All runs are equal, or one run was made: the only figure is the newest.
        return _all_same(fields, count)
    refuse_unlike_means(mean_ns, to_latency_ns(fields["avg"], NS_PER_US, "the mean"))
    median = fields.get("median")
    p95, std = fields.get("p95"), fields.get("std")
    return ToolSummary(
        count=count,
        latency_ns=mean_ns if median is None else to_latency_ns(median, NS_PER_US, "the median"),
        statistic=Statistic.MEAN if median is None else Statistic.MEDIAN,
        mean_ns=mean_ns,
        # A whole number of microseconds: the program stores it so.
        std_ns=None if std is None else to_ns(std, NS_PER_US, "the standard deviation"),
        p95_ns=None if p95 is None else to_latency_ns(p95, NS_PER_US, "the 95th percentile"),
    )


def _all_same(fields: Mapping[str, str], count: int) -> ToolSummary:
    if "curr" not in fields:
        raise not_a_result("a line of statistics without figures")
    value_ns = to_latency_ns(fields["curr"], NS_PER_US, "the latency")
    return ToolSummary(
        count=count,
        latency_ns=value_ns,
        statistic=Statistic.MEDIAN,
        mean_ns=value_ns,
        std_ns=0 if count > 1 else None,
        p95_ns=value_ns,
    )


def _first(warmup: Mapping[str, str]) -> int | None:
    text = warmup.get("first", warmup.get("curr"))
    if text is None or int(warmup["count"]) == 0:
        return None
    return to_ns(text, NS_PER_US, "the first inference")


def _warmup(warmup: Mapping[str, str], first_ns: int | None) -> tuple[int | None, int | None]:
    """Runs and time after the first inference, which a separate column stores."""
    count = int(warmup["count"])
    mean = warmup.get("avg", warmup.get("curr"))
    if count == 0 or mean is None or first_ns is None:
        return None, None
    # The mean is printed with six digits: for two runs the sum may be below the first run.
    total_ns = to_ns(float(mean) * count, NS_PER_US, "the warm-up time")
    return count - 1, max(0, total_ns - first_ns)


def _memory(text: str) -> tuple[int | None, int | None]:
    found = _MEMORY.search(text)
    if found is None:
        return None, None
    init, overall = (grown_bytes(float(value) * BYTES_PER_MIB) for value in found.groups())
    return init, overall


# Reads from the text of `benchmark_model` how much of the graph its delegate runs.

_KERNELS = {
    "xnnpack": "TfLiteXNNPackDelegate",
    "gpu": "TfLiteGpuDelegateV2",
    "nnapi": "TfLiteNnapiDelegate",
}
"""Backend to the name of its delegate in sentences that count nodes."""
_BUILT_IN = frozenset(
    {*_KERNELS.values(), "TfLiteHexagonDelegate", "Hexagon", "TfLiteFlexDelegate"}
)
"""Delegates that a program can contain; every other name is that of an external one."""
_NAMES = {"xnnpack": "XNNPACK", "gpu": "GPU", "nnapi": "NNAPI", EXTERNAL: "EXTERNAL"}
"""Backend to the name of its delegate in 'Explicitly applied ...'."""

_REPLACED = re.compile(
    r"Replacing ([0-9]{1,9}) out of ([0-9]{1,9}) node\(s\) with delegate \(([^)\n]{0,64}+)\)"
)
_TAKEN = re.compile(
    r"([\w.-]{1,64}+)(?: delegate)?: ([0-9]{1,9}) nodes delegated out of ([0-9]{1,9}) nodes"
)
"""A delegate's own sentence, such as 'TfLiteQnnDelegate delegate: 3 nodes ...'.

Source: simple_delegate.cc of LiteRT, QNN's text in tensorflow issue 83344."""
_APPLIED = re.compile(
    r"(?:Explicitly applied|Applied) (\w{1,32}+) delegate"
    r"(?:, and the model graph will be (completely|partially))?"
    r"(?:[^\n]{0,40}? w/ ([0-9]{1,9}) delegate kernels)?"
)
"""The kernels are nodes of the executed graph that belong to the delegate."""
_NOT_APPLIED = re.compile(
    r"Though (\w{1,32}+) delegate is explicitly applied, the model graph will not"
)
_NNAPI_ERROR = "nnapi error"
"""The start of its loader's messages: its library, or a function that it needs, is missing.

Source: nnapi_implementation.cc of TensorFlow."""


class Placement(StrEnum):
    """How much of the graph runs on the delegate."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    NONE = "none"
    UNKNOWN = "unknown"
    """The text proves nothing: it has no such sentence, or says `partially` without a number.

    Builds before 2021 say `partially` also where the delegate took no node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The text's statements about one delegate.

    Attributes:
        backend_nodes: nodes replaced by the delegate's kernels; `None` if no count is printed.
        graph_nodes: all nodes.
    """

    placement: Placement
    backend_nodes: int | None
    graph_nodes: int | None

    @property
    def node_share(self) -> float | None:
        """Nodes on the delegate as a share of all, 0 to 1; `None` without a count."""
        if self.backend_nodes is None or not self.graph_nodes:
            return None
        return self.backend_nodes / self.graph_nodes


def read_delegation(text: str, backend: str) -> Delegation:
    """Reads the placement of the backend's own delegate; other delegates are ignored.

    The sentence 'Though ... will not be executed' has priority over the count of nodes: NNAPI
    replaces all nodes first and gives them back if its driver rejects the model. NNAPI that is not
    on the phone is applied too, and takes nothing.

    Source: benchmark_tflite_model.cc of TensorFlow 1.15 to 2.20 and LiteRT.

    Raises:
        BadOutputError: more nodes are replaced than the graph has.
    """
    taken, n_all = _nodes(text, backend)
    counted = Delegation(placement=Placement.NONE, backend_nodes=taken, graph_nodes=n_all)
    is_absent = backend == "nnapi" and _NNAPI_ERROR in text
    if is_absent or _NAMES[backend] in _NOT_APPLIED.findall(text):
        return replace(counted, backend_nodes=None if n_all is None else 0)
    said = {how for name, how, _ in _APPLIED.findall(text) if name == _NAMES[backend]}
    kernels = sum(int(n or 0) for name, _, n in _APPLIED.findall(text) if name == _NAMES[backend])
    placement = _placement(said, counted.node_share, has_kernels=kernels > 0)
    return replace(counted, placement=placement)


def has_nodes_on(text: str, backend: str) -> bool:
    """Whether the text shows that the backend's delegate runs at least one node."""
    return bool(_nodes(text, backend)[0])


def _placement(said: set[str], share: float | None, *, has_kernels: bool) -> Placement:
    if share == 0:
        return Placement.NONE
    if "partially" in said:
        return Placement.UNKNOWN if share is None and not has_kernels else Placement.PARTIAL
    if "completely" in said:
        return Placement.COMPLETE
    if share is None:
        return Placement.UNKNOWN
    return Placement.COMPLETE if share >= 1 else Placement.PARTIAL


def _nodes(text: str, backend: str) -> tuple[int | None, int | None]:
    """Nodes on the delegate, and all nodes."""
    replaced = _REPLACED.findall(text)
    counts = [(int(n), int(of)) for n, of, name in replaced if _is_of(name, backend)]
    if not counts:
        # The interpreter's own sentence is not in the text of every build.
        own = _TAKEN.findall(text)
        counts = [(int(n), int(of)) for name, n, of in own if _is_of(name, backend)]
    if (wrong := next(((n, of) for n, of in counts if n > of), None)) is not None:
        raise not_a_result("{} of {} nodes are on the delegate".format(*wrong))
    n_all = sum(of for _n, of in counts)
    return (sum(n for n, _of in counts), n_all) if n_all else (None, None)


def _is_of(kernel: str, backend: str) -> bool:
    """Whether a delegate's kernel belongs to the backend; the name of an external one is free."""
    if backend == EXTERNAL:
        return kernel not in _BUILT_IN
    return kernel == _KERNELS[backend]
