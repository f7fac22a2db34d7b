"""Parses the text of `benchmark_model`, from TensorFlow 1.12 to LiteRT 2.

Known variants: with or without `INFO: ` before lines; everything on standard error or not; with
and without percentiles; `count=0`; `count=5 curr=7(all same)`; scientific numbers; the last line
of TensorFlow 1.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.android.programs.benchmark_result import BenchmarkFigures, grown_bytes
from fleetrank.device_agents.android.programs.program_text import (
    NS_PER_US,
    NUMBER,
    named_fields,
    not_a_result,
    to_latency_ns,
    to_ns,
)
from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.device_output import refuse_unlike_means
from fleetrank.device_agents.errors import BadOutputError

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
    rf"Memory footprint delta from the start of the tool \(MB\): init=({NUMBER}) overall=({NUMBER})"
)
_BYTES_PER_MB = 2**20
"""The program divides its kilobytes by 1024. Source: benchmark_model.cc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closing:
    init_ns: int
    first_inference_ns: int | None
    mean_ns: int


def read_text(text: str) -> BenchmarkFigures:
    """Reads the text of one run.

    Raises:
        BadOutputError: part of the text is missing, or a figure is not plausible.
    """
    closing = _closing(text)
    if closing is None:
        raise not_a_result("the closing line with the timings is missing")
    warmup, timed = _phases(text)
    summary = _summary(timed, closing.mean_ns)
    init_memory, overall_memory = _memory(text)
    first_ns = closing.first_inference_ns
    if first_ns is None:
        first_ns = _first(warmup)
    warmup_runs, warmup_ns = _warmup(warmup, first_ns)
    return BenchmarkFigures(
        summary=summary,
        min_ns=_extreme(timed, "min"),
        max_ns=_extreme(timed, "max"),
        has_median="median" in timed or "avg" not in timed,
        init_ns=closing.init_ns,
        first_inference_ns=first_ns,
        warmup_ns=warmup_ns,
        warmup_runs=warmup_runs,
        init_memory_bytes=init_memory,
        overall_memory_bytes=overall_memory,
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
        median_ns=mean_ns if median is None else to_latency_ns(median, NS_PER_US, "the median"),
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
        median_ns=value_ns,
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
    init, overall = (grown_bytes(float(value) * _BYTES_PER_MB) for value in found.groups())
    return init, overall


_KERNELS = {
    "xnnpack": "TfLiteXNNPackDelegate",
    "gpu": "TfLiteGpuDelegateV2",
    "nnapi": "TfLiteNnapiDelegate",
}
"""Backend to the name of its delegate in 'Replacing N out of M node(s)'."""
_NAMES = {"xnnpack": "XNNPACK", "gpu": "GPU", "nnapi": "NNAPI"}
"""Backend to the name of its delegate in 'Explicitly applied ...'."""

_REPLACED = re.compile(
    r"Replacing ([0-9]{1,9}) out of ([0-9]{1,9}) node\(s\) with delegate \(([^)\n]{0,64}+)\)"
)
_APPLIED = re.compile(
    r"(?:Explicitly applied|Applied) (\w{1,32}+) delegate"
    r"(?:, and the model graph will be (completely|partially))?"
)
_NOT_APPLIED = re.compile(
    r"Though (\w{1,32}+) delegate is explicitly applied, the model graph will not"
)


class Placement(StrEnum):
    """How much of the graph runs on the delegate."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    NONE = "none"
    UNKNOWN = "unknown"
    """The text does not contain it; builds before 2020 do not print it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The text's statements about one delegate.

    Attributes:
        node_share: nodes replaced by the delegate's kernels, as a share of all, 0 to 1.
    """

    placement: Placement
    node_share: float | None


def read_delegation(text: str, backend: str) -> Delegation:
    """Reads the placement of the backend's own delegate; other delegates are ignored.

    The sentence 'Though ... will not be executed' has priority over the count of nodes: NNAPI
    replaces all nodes first and gives them back if its driver rejects the model.

    Source: benchmark_tflite_model.cc of TensorFlow 1.15 to 2.20 and LiteRT.

    Raises:
        BadOutputError: more nodes are replaced than the graph has.
    """
    share = _node_share(text, _KERNELS[backend])
    if _NAMES[backend] in _NOT_APPLIED.findall(text):
        return Delegation(placement=Placement.NONE, node_share=0.0)
    said = [how for name, how in _APPLIED.findall(text) if name == _NAMES[backend]]
    return Delegation(placement=_placement(said, share), node_share=share)


def _placement(said: list[str], share: float | None) -> Placement:
    if "partially" in said:
        return Placement.PARTIAL
    if "completely" in said:
        return Placement.COMPLETE
    if share is None:
        return Placement.UNKNOWN
    if share == 0:
        return Placement.NONE
    return Placement.COMPLETE if share >= 1 else Placement.PARTIAL


def _node_share(text: str, kernel: str) -> float | None:
    counts = [(int(n), int(of)) for n, of, name in _REPLACED.findall(text) if name == kernel]
    if (wrong := next(((n, of) for n, of in counts if n > of), None)) is not None:
        raise not_a_result("{} of {} nodes are on the delegate".format(*wrong))
    n_all = sum(of for _n, of in counts)
    return sum(n for n, _of in counts) / n_all if n_all else None
