"""LiteRT's `benchmark_model`: TFLite files on CPU, GPU and NNAPI; a summary, no samples.

Memory is the growth of ru_maxrss that the program always prints. Its peak monitor is not used: the
monitor is a thread that wakes every 50 ms during the measurement.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fleetrank.device_agents.android.programs.benchmark_text import (
    BenchmarkFigures,
    Delegation,
    Placement,
    has_nodes_on,
    printed_count,
    read_delegation,
    read_result,
    read_text,
)
from fleetrank.device_agents.android.programs.phone_program import (
    CAPABILITY,
    NO_XNNPACK,
    READ,
    REQUIRE_ALL,
    REQUIRED_ALL,
    XNNPACK,
    PhoneProgram,
    ProgramCall,
    ProgramOutput,
    Wording,
    all_text,
    backend_of,
    delegate_flags,
    flags_not_applied,
    has_required_all,
    last_words,
    library_of,
    not_a_result,
    readable,
    reported,
    to_ns,
    why_not_delegated,
)
from fleetrank.device_agents.contract.measurement import (
    MOST_RUNS,
    Kernel,
    Measurement,
    Profile,
    ToolSummary,
)
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask, OptionValue
from fleetrank.device_agents.device_output import (
    MAX_LINE_CHARACTERS,
    bounded_name,
    refuse_impossible,
    refuse_unlike_counts,
    whole_number,
)
from fleetrank.device_agents.errors import BadOutputError, UnsupportedError
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.inputs import ModelInput, plain_input_name
from fleetrank.foundation.vocabulary import NS_PER_MS, MemoryMetric, SampleKind

# The flags of `benchmark_model` that state inputs.
#
# Source: tensorflow/lite/tools/benchmark/benchmark_tflite_model.cc (2019 to 2025): inputs count
# in the file's order, and another name is only a warning; a shape is `1,8`, of several inputs
# `1,8:1,8`; a range is `NAME,LOW,HIGH` in whole numbers, both included. Without a range floats
# are -0.5 to 0.5 or 0 to 1, whole numbers 0 to 99, bytes their range, booleans 0 or 1. A range of
# booleans is ignored.

_LAYERS = "--input_layer="
_PLAIN = re.compile(r"[A-Za-z0-9_./-]{1,100}")
"""Commas and colons separate names and shapes in the flags."""
_OTHER_NAME = re.compile(r"Tensor # \d+ is named (\S{1,200}) but flags call it (\S{1,200})")
_LARGEST = 2**31 - 1
_INDICES = frozenset({"int16", "int32", "int64"})


def why_not_stated(inputs: Sequence[ModelInput]) -> str | None:
    """Says which input the flags cannot state, or `None` when they can state all."""
    return next((reason for one in inputs if (reason := _why_not(one)) is not None), None)


def _why_not(one: ModelInput) -> str | None:
    values = one.values
    if values.path is not None:
        return f"input {one.name!r} has its values in a file, which is not copied to a phone"
    if not one.shape:
        return f"input {one.name!r} has no dimension, and benchmark_model cannot state its shape"
    if values.low is None or values.high is None:
        return None
    if one.dtype == "bool" and (values.low, values.high) != (0.0, 1.0):
        return f"benchmark_model ignores the values of input {one.name!r}: it is boolean"
    ends = (values.low, values.high)
    if all(float(end).is_integer() and abs(end) <= _LARGEST for end in ends):
        return None
    return (
        f"input {one.name!r} has values from {ends[0]:g} to {ends[1]:g}; benchmark_model takes "
        "whole numbers of 32 bits"
    )


def input_flags(inputs: Sequence[ModelInput]) -> tuple[str, ...]:
    """The flags for inputs that `why_not_stated` accepts; none without inputs."""
    if not inputs:
        return ()
    names = [
        one.name if _PLAIN.fullmatch(one.name) else f"input_{place}"
        for place, one in enumerate(inputs)
    ]
    shapes = (",".join(map(str, one.shape)) for one in inputs)
    ranges = [
        f"{name},{ends[0]:.0f},{ends[1]:.0f}"
        for name, one in zip(names, inputs, strict=True)
        if (ends := _range(one)) is not None
    ]
    return (
        f"{_LAYERS}{','.join(names)}",
        f"--input_layer_shape={':'.join(shapes)}",
        *([f"--input_layer_value_range={':'.join(ranges)}"] if ranges else []),
    )


def _range(one: ModelInput) -> tuple[float, float] | None:
    """The least and the largest value; `None` leaves them to the program."""
    low, high = one.values.low, one.values.high
    if one.dtype == "bool":
        return None
    if isinstance(one.values.counts_to, int):
        return _positions(one.shape[-1], one.values.counts_to)
    if low is not None and high is not None:
        return low, high
    # As on other devices: every table has the rows 0 and 1.
    return (0.0, 1.0) if one.dtype in _INDICES else None


def _positions(count: int, end: int) -> tuple[float, float]:
    """The position of a step exactly; of a prompt any in it, because no flag counts upwards.

    A graph with a dense mask computes the same for all of them.
    """
    return float(end - 1 if count == 1 else 0), float(end - 1)


def refuse_other_order(argv: Sequence[str], text: str) -> None:
    """Checks that the program did not give an input the sizes and values of another one.

    Raises:
        UnsupportedError: the file has an input of a stated name at another place.
    """
    flag = next((word for word in argv if word.startswith(_LAYERS)), _LAYERS)
    stated = set(flag.removeprefix(_LAYERS).split(","))
    for found, called in _OTHER_NAME.findall(text):
        name = plain_input_name(found)
        if name in stated and name != called:
            raise UnsupportedError(
                f"the file has input {name!r} where the card states {called!r}",
                "state [[inputs]] of the card in the file's order",
            )


# Reads the times of operators that `benchmark_model --enable_op_profiling=true` prints.
#
# After "Regular Benchmark Runs:", the table `Run Order` has a row for each node: its type, in
# older versions its start, the first and the mean time of a call in milliseconds, two shares,
# memory, calls in one run, and its name. A name is the list of the tensors that the node writes,
# and its number. LiteRT's exporter from PyTorch names tensors after modules.
#
# A delegate is one node, unless it reports its own operators. XNNPACK of newer versions does, in
# place of that node. In older versions, and in other delegates, its operators have the type
# `DelegateOpInvoke`, in the same table or in another one, and their time is in that node too.
#
# The program's CSV file is not used: the option for it has another name in other versions, and
# the profiler counts microseconds, so the file is hardly more precise.
#
# Source: tflite/profiling/profile_summarizer.cc and profile_summary_formatter.cc of LiteRT 2 and
# TensorFlow 2.4, stats_calculator.cc of TensorFlow, build_mlir_debuginfo in
# litert_torch/backend/debuginfo of 0.10.

_TIMED_RUNS = "Regular Benchmark Runs:"
_TABLE = "= Run Order ="
_START = "[start]"
_OPERATOR_COUNT = "Number of nodes executed: "
_DROPPED = "Dropping ProfileBuffer event"
"""Source: tflite/profiling/profile_buffer.cc, when the buffer is too small."""
_INTERNAL = "DelegateOpInvoke"
_INTERNAL_NAME = "Delegate/"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    type: str
    call_ns: int
    calls: int
    name: str

    @property
    def ns(self) -> int:
        """In one run. Versions that print 0 calls have one."""
        return self.call_ns * self.calls


def read_operators(text: str) -> tuple[Kernel, ...]:
    """The nodes of the timed runs, in the order of their first call.

    Their times are means over the runs, from whole microseconds of a call.

    Raises:
        BadOutputError: the table is missing or lacks nodes.
    """
    if _DROPPED in text:
        raise not_a_result("the profile lacks operators: the program's buffer was too small")
    _before, mark, profile = text.replace("\r\n", "\n").rpartition(_TIMED_RUNS)
    tables = _tables(profile.split("\n")) if mark else []
    if not tables or not tables[0]:
        raise not_a_result("the times of operators are missing")
    # Tables of other graphs are of what a control operator of the first one calls.
    first = [row for row in tables[0] if row.type != _INTERNAL]
    inside = [row for table in tables for row in table if row.type == _INTERNAL]
    return tuple(_kernel(row) for row in _resolved(first, inside))


def _tables(lines: Sequence[str]) -> list[list[_Row]]:
    """The rows of each table `Run Order`; the program counts them after the table."""
    tables: list[list[_Row]] = []
    stated: list[int | None] = []
    previous, is_inside, has_start = "", False, False
    for line in lines:
        if _TABLE in previous:
            tables.append([])
            is_inside, has_start = True, _START in line
        elif not line.strip():
            is_inside = False
        elif is_inside:
            # Cut, not left out: the figures stand before the names, which can be long.
            tables[-1].append(_row(line[:MAX_LINE_CHARACTERS], has_start=has_start))
        elif line.startswith(_OPERATOR_COUNT):
            stated.append(whole_number(line.removeprefix(_OPERATOR_COUNT).strip()))
        previous = line
    counts = [len(table) for table in tables]
    if counts != stated:
        raise not_a_result(f"the profile has {counts[:3]} operators, of {stated[:3]}")
    return tables


def _row(line: str, *, has_start: bool) -> _Row:
    """One row; a type may contain blanks and commas, so the figures are counted from the `%`."""
    n_figures = 4 if has_start else 3
    before, mark, after = line.partition("%")
    words, rest = before.split(), after.split(maxsplit=3)
    calls = whole_number(rest[2]) if len(rest) > 2 else None
    if not mark or len(words) <= n_figures or calls is None or calls < 0:
        raise not_a_result(f"a row of the profile is {line.strip()[:120]!r}")
    try:
        call_ns = to_ns(words[-2], NS_PER_MS, "the time of an operator")
    except ValueError:
        raise not_a_result(f"the time of an operator is {words[-2][:40]!r}") from None
    calls = max(1, calls)
    to_ns(call_ns * calls, 1, "the time of an operator")
    name = rest[3] if len(rest) > 3 else ""
    return _Row(type=" ".join(words[:-n_figures]), call_ns=call_ns, calls=calls, name=name)


def _resolved(first: Sequence[_Row], inside: Sequence[_Row]) -> Iterator[_Row]:
    """Each time once: a delegate's node keeps what its own operators do not explain."""
    if not inside:
        yield from first
        return
    delegates = [row for row in first if is_delegate(row.type)]
    if not delegates:
        raise not_a_result("the profile has operators of a delegate that it does not have")
    yield from (row for row in first if not is_delegate(row.type))
    yield from inside
    left_ns = sum(row.ns for row in delegates) - sum(row.ns for row in inside)
    kept = delegates[0]
    yield _Row(type=kept.type, call_ns=max(0, left_ns), calls=1, name=kept.name)


def is_delegate(operator: str) -> bool:
    """Whether an operator is the node of a delegate, such as `TfLiteGpuDelegateV2`."""
    return "delegate" in operator.lower()


def _kernel(row: _Row) -> Kernel:
    operator = row.type
    if row.type == _INTERNAL:
        operator = row.name.removeprefix(_INTERNAL_NAME).rpartition(":")[0] or row.type
    return Kernel(
        node=bounded_name(row.name or row.type),
        module=None if is_delegate(operator) else module_of(row.name),
        operator=bounded_name(operator),
        kernel_ns=row.ns,
        calls=row.calls,
    )


def module_of(name: str) -> str | None:
    """The module in the name of a node; `None` if the file was not exported from PyTorch.

    A tensor of several nodes has the names of all; the last is of the node that computes first,
    such as a convolution with its activation. `[torch.nn.Sequential/torch.nn.ReLU_1;;
    torch.nn.Sequential/torch.nn.Conv2d_0;1]:3` gives `0`. Modules that are never called, such as a
    `ModuleList`, are not in the name: `blocks.4` is `4` here.
    """
    tensor = (
        name.removeprefix("[").partition(", ")[0].rpartition("]:")[0] or name.partition(", ")[0]
    )
    paths = [_path(one) for one in tensor.removeprefix("[").split(";") if one and not one.isdigit()]
    known = [path for path in paths if path is not None]
    return known[-1] if known else None


def _path(text: str) -> str | None:
    """`a.Net/a.b.Block_4/a.b.Linear_up` is `4.up`; `a.Net` alone is the model itself."""
    levels = [_instance(level) for level in text.split("/")]
    if levels[0] != "" or None in levels[1:] or "" in levels[1:]:
        return None
    return ".".join(level for level in levels[1:] if level)


def _instance(level: str) -> str | None:
    """The name that a module has in its parent: `a.b.Linear_up` has `up`.

    Empty for the model, which has no parent; `None` for a text that is not of this form.
    """
    place, dot, last = level.rpartition(".")
    kind, _mark, instance = last.lstrip("_").partition("_")
    if not dot or not place.replace(".", "_").isidentifier() or not kind[:1].isupper():
        return None
    return instance


RESULT_FILE = "result.pb"

MIN_TIMED_S = 1.0
"""Least duration, since a hundred runs of a small network take 20 ms. Source: its default."""

_PROFILED = "--enable_op_profiling=true"
_ROOM = "--max_profiling_buffer_entries"
_MOST_EVENTS = 32_768
"""Of one run; the program takes as many as the file has nodes, and a delegate can report more."""
_OPTIONAL_FLAGS = frozenset({"--result_file_path", _ROOM})
"""Flags that an older build may lack; its text contains the same figures."""


class _UnprovenError(UnsupportedError):
    """The output is good, but does not say whether the delegate ran a node."""


class BenchmarkModel(PhoneProgram):
    """Backends: LiteRT's own kernels, its delegates, and libraries that the user gives."""

    name = "benchmark_model"
    artifact_suffix = ".tflite"
    capability = CAPABILITY
    wording = Wording(
        unsupported=(
            "Disallowed CPU fallback detected", "Failed to parse flag", "Failed to apply",
            "Didn't find op for builtin", "nresolved custom op", "unresolved-ops",
            "delegate is not supported",
        ),
        bad_artifact=(
            "Failed to mmap model", "Could not open", "not a valid flatbuffer",
            "not a valid Flatbuffer", "Failed to load model",
            "Model provided has model identifier",
        ),
    )  # fmt: skip
    runs_for_a_time = True

    def why_unknown(self, execution: Execution) -> str | None:
        """Options belong to backends here."""
        return why_not_delegated(execution, self.name)

    def why_not_stated(self, execution: Execution) -> str | None:
        """Says which input the flags cannot state, or `None`."""
        return why_not_stated(execution.inputs)

    def why_not_profiled(self, execution: Execution) -> str | None:  # noqa: ARG002
        """Every version and every backend reports nodes; a delegate may be one of them."""
        return None

    def call(
        self, program_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ProgramCall:
        """Builds the command line."""
        execution = task.execution
        result_file = f"{run_folder}/{RESULT_FILE}"
        argv = (
            program_path,
            f"--graph={artifact_path}",
            f"--num_threads={execution.threads}",
            *(_profile_flags(task.policy) if task.is_profiled else _policy_flags(task.policy)),
            *delegate_flags(execution, program_path.rpartition("/")[0]),
            *input_flags(execution.inputs),
            f"--result_file_path={result_file}",
        )
        return ProgramCall(
            argv=_last_of_each(argv),
            result_file=result_file,
            library=library_of(execution.backend),
        )

    def task_that_proves(self, task: MeasureTask, output: ProgramOutput) -> MeasureTask | None:
        """The task with the whole model required on its delegate, if the text shows nothing."""
        try:
            self.read(output)
        except _UnprovenError:
            options = tuple(sorted({**dict(task.execution.options), REQUIRE_ALL: True}.items()))
            return replace(task, execution=replace(task.execution, options=options))
        except FleetError:
            return None
        return None

    def result(self, output: ProgramOutput) -> Measurement:
        """Reads the result from the program's output."""
        text = all_text(readable(output))
        _refuse_flags_not_applied(output.run.argv, text)
        refuse_other_order(output.run.argv, text)
        figures, source = _figures(output, text)
        refuse_impossible(figures.summary, min_ns=figures.min_ns, max_ns=figures.max_ns)
        delegation = _delegation(output.run.argv, text)
        profile = _profile(output, figures.summary)
        settings: dict[str, OptionValue] = {
            "read_from": source,
            "summary_statistic": figures.summary.statistic.value,
            **_delegate_settings(delegation),
        }
        has_memory = figures.overall_memory_bytes is not None
        return replace(
            READ,
            sample_kind=SampleKind.TOOL_SUMMARY,
            summary=figures.summary if profile is None else None,
            load_ns=figures.init_ns,
            first_inference_ns=figures.first_inference_ns,
            warmup_ns=figures.warmup_ns,
            warmup_runs=figures.warmup_runs,
            memory_metric=MemoryMetric.MAXRSS_GROWTH if has_memory else None,
            load_peak_memory_bytes=figures.init_memory_bytes if has_memory else None,
            run_peak_memory_bytes=figures.overall_memory_bytes,
            backend_nodes=None if delegation is None else delegation.backend_nodes,
            graph_nodes=None if delegation is None else delegation.graph_nodes,
            worker=reported(settings),
            profile=profile,
        )


def _policy_flags(policy: MeasurePolicy) -> tuple[str, ...]:
    """The program has one time limit for warm-up and timing together, and has no stop rule.

    Runs continue until `num_runs` and `min_secs` are both reached; `max_secs` stops them, so the
    count may be above or below `num_runs`. With `min_time_s` time alone decides.
    """
    runs, least_s, most_s = policy.min_runs, min(MIN_TIMED_S, policy.max_time_s), policy.max_time_s
    if policy.min_time_s > 0:
        runs, least_s, most_s = 1, policy.min_time_s, 2 * policy.min_time_s
    return (
        f"--warmup_runs={policy.min_warmup_runs}",
        f"--warmup_min_secs={policy.min_warmup_s:g}",
        f"--num_runs={runs}",
        f"--min_secs={least_s:g}",
        f"--max_secs={most_s:g}",
    )


def _profile_flags(policy: MeasurePolicy) -> tuple[str, ...]:
    """As many runs as a worker on a host profiles, and fewer if `max_time_s` ends them."""
    return (
        *_policy_flags(replace(policy, min_runs=MOST_RUNS, min_time_s=0.0)),
        "--min_secs=0",
        _PROFILED,
        f"{_ROOM}={_MOST_EVENTS}",
    )


def _profile(output: ProgramOutput, summary: ToolSummary) -> Profile | None:
    """Where the time goes, if the call asked for it; the names may be in long lines.

    Raises:
        BadOutputError: the text has no complete list of operators.
    """
    if _PROFILED not in output.run.argv or summary.count is None:
        return None
    return Profile(
        kernels=read_operators(all_text(output)), runs=summary.count, run_ns=summary.latency_ns
    )


def _last_of_each(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Keeps one flag of each name: it is not documented which of two a build uses."""
    return tuple({item.partition("=")[0]: item for item in argv}.values())


def _refuse_flags_not_applied(argv: tuple[str, ...], text: str) -> None:
    """Rejects flags that the build does not know: at most it warns, and it ends well."""
    unknown = dict.fromkeys(flags_not_applied(argv, text))
    refused = [flag for flag in unknown if not _is_harmless(flag, text)]
    if refused:
        raise UnsupportedError(
            f"this build of benchmark_model does not know {' '.join(refused)[:300]}",
            "give a newer build with `tool=benchmark_model=PATH`, or remove the option",
        )


def _is_harmless(flag: str, text: str) -> bool:
    """Whether a flag that the build does not know changes nothing.

    LiteRT 2 uses XNNPACK without a flag; its text must show it. The first builds have none.
    """
    if flag == XNNPACK:
        return has_nodes_on(text, "xnnpack")
    if flag == NO_XNNPACK:
        return "xnnpack" not in text.lower()
    return flag.partition("=")[0] in _OPTIONAL_FLAGS


def _figures(output: ProgramOutput, text: str) -> tuple[BenchmarkFigures, str]:
    """Reads the result file if it is valid, otherwise the text.

    Raises:
        BadOutputError: neither is valid, or the two disagree about the number of runs.
    """
    if not output.result:
        return read_text(text), "text"
    try:
        figures = read_result(output.result)
    except BadOutputError:
        # The text of the same run may be complete.
        return read_text(text), "text"
    if (printed := printed_count(text)) is not None and figures.summary.count is not None:
        refuse_unlike_counts(figures.summary.count, printed)
    return figures, "result_file"


def _delegation(argv: tuple[str, ...], text: str) -> Delegation | None:
    """Reads what the delegate accepted; `None` for a backend without a delegate.

    Raises:
        UnsupportedError: nothing proves that it accepted a node, so the row would show a CPU's
            latency; or it did not accept all nodes although that was required.
    """
    backend = backend_of(argv)
    if backend == "builtin":
        return None
    found = read_delegation(text, backend)
    if found.placement is Placement.UNKNOWN and has_required_all(argv, text):
        return replace(found, placement=Placement.COMPLETE)
    if found.placement is Placement.NONE:
        raise UnsupportedError(
            f"the {backend} delegate took no node of the model: {last_words(text)}",
            "choose another backend for this model: other kernels would run it",
        )
    if found.placement is Placement.UNKNOWN:
        refused = UnsupportedError if REQUIRED_ALL in argv else _UnprovenError
        raise refused(
            f"no proof that a node of the model ran on {backend}: this build prints no number",
            "give a newer build with `tool=benchmark_model=PATH`, or use the backend `builtin`",
        )
    if REQUIRED_ALL in argv and found.placement is not Placement.COMPLETE:
        raise UnsupportedError(
            f"all of the model was required on the {backend} delegate; placement: "
            f"{found.placement.value}, share of nodes {found.node_share}",
            "remove require_full_delegation, or choose another backend for this model",
        )
    return found


def _delegate_settings(found: Delegation | None) -> dict[str, OptionValue]:
    if found is None:
        return {}
    settings: dict[str, OptionValue] = {"delegate_placement": found.placement.value}
    if found.node_share is not None:
        settings["delegate_node_share"] = found.node_share
    return settings
