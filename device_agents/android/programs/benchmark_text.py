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

Memory = tuple[float | None, float | None]
"""Growth of ru_maxrss in bytes, until the model was ready and until the last run."""


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


def _judged(ns: Mapping[str, float], count: int, n_warmup: int, memory: Memory) -> BenchmarkFigures:
    """The figures of any of the three forms.

    Args:
        ns: times by name; only `mean` is required.
        count: timed runs.
        n_warmup: runs of the warm-up, the first inference included.
        memory: growth that is not judged yet.

    Raises:
        BadOutputError: no run was timed, or a figure is not plausible.
    """
    if count < 1:
        raise not_a_result("no run was timed")

    def known(name: str) -> int | None:
        return to_ns(ns[name], 1, f"the time {name!r}") if name in ns else None

    def latency(name: str) -> int | None:
        return to_latency_ns(ns[name], 1, f"the {name}") if name in ns else None

    mean_ns, median_ns, first_ns = (
        to_latency_ns(ns["mean"], 1, "the mean"),
        latency("median"),
        known("first"),
    )
    has_warmup = first_ns is not None and "warmup" in ns and n_warmup > 0
    # The mean has few digits: for two runs the sum may be below the first run.
    total_ns = to_ns(ns["warmup"] * n_warmup, 1, "the warm-up time") if has_warmup else 0
    return BenchmarkFigures(
        summary=ToolSummary(
            count=count,
            latency_ns=mean_ns if median_ns is None else median_ns,
            # Old builds print only the mean.
            statistic=Statistic.MEAN if median_ns is None else Statistic.MEDIAN,
            mean_ns=mean_ns,
            std_ns=known("std"),
            p95_ns=latency("p95"),
        ),
        min_ns=known("min"),
        max_ns=known("max"),
        init_ns=known("init"),
        first_inference_ns=first_ns,
        warmup_ns=max(0, total_ns - (first_ns or 0)) if has_warmup else None,
        warmup_runs=n_warmup - 1 if has_warmup else None,
        init_memory_bytes=_grown(memory[0]),
        overall_memory_bytes=_grown(memory[1]),
    )


def _grown(n_bytes: float | None) -> int | None:
    """A growth of ru_maxrss; zero or less is not a reading.

    The program's process inherits the high-water mark of its parent: growth below this mark is not
    visible. No model runs without memory.
    """
    if n_bytes is None or n_bytes <= 0:
        return None
    MEMORY_BYTES.require(n_bytes, f"{n_bytes:g} bytes")
    return round(n_bytes)


# The result file of newer builds of `benchmark_model`: a proto2 message.
#
# Source: field numbers of tflite/tools/benchmark/proto/benchmark_result.proto as of TensorFlow
# 2.20 and LiteRT; times in milliseconds, sizes in kilobytes, all stored as 32-bit floats.

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
    return _judged(ns, int(misc["num_runs"]), n_warmup, (grown[0], grown[1]))


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


# The block of results that LiteRT 2's `benchmark_model` (CompiledModel) ends with: a mean and no
# median, in steps of 10 us.
#
# Source: litert/tools/benchmark_litert_model.h of LiteRT 2.1, checked on published output.

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
        return _judged(block.ns, count, block.counts.get("warmup", 0), block.memory)
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
    return _judged(ns, count, n_warmup, memory)


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
