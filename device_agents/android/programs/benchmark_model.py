"""LiteRT's `benchmark_model`: TFLite files on CPU, GPU and NNAPI; a summary, no samples.

Memory is the growth of ru_maxrss that the program always prints. Its peak monitor is not used: the
monitor is a thread that wakes every 50 ms during the measurement.
"""

from dataclasses import replace

from fleetrank.device_agents.android.programs.benchmark_inputs import (
    input_flags,
    refuse_other_order,
    why_not_stated,
)
from fleetrank.device_agents.android.programs.benchmark_result import read_result
from fleetrank.device_agents.android.programs.benchmark_text import BenchmarkFigures
from fleetrank.device_agents.android.programs.delegate_flags import (
    CAPABILITY,
    NO_XNNPACK,
    REQUIRE_ALL,
    REQUIRED_ALL,
    XNNPACK,
    backend_of,
    delegate_flags,
    flags_not_applied,
    has_required_all,
    library_of,
    why_not_delegated,
)
from fleetrank.device_agents.android.programs.delegation_text import (
    Delegation,
    Placement,
    has_nodes_on,
    read_delegation,
)
from fleetrank.device_agents.android.programs.litert_text import printed_count, read_text
from fleetrank.device_agents.android.programs.operator_times import read_operators
from fleetrank.device_agents.android.programs.phone_program import READ, PhoneProgram, reported
from fleetrank.device_agents.android.programs.program_output import (
    ProgramCall,
    ProgramOutput,
    Wording,
)
from fleetrank.device_agents.android.programs.program_text import all_text, last_words, readable
from fleetrank.device_agents.contract.kernel_profile import MOST_RUNS, Profile
from fleetrank.device_agents.contract.measurement import Measurement, ToolSummary
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask, OptionValue
from fleetrank.device_agents.device_output import refuse_impossible, refuse_unlike_counts
from fleetrank.device_agents.errors import BadOutputError, UnsupportedError
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import MemoryMetric, SampleKind

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
            *(_profile_flags if execution.is_profiled else _policy_flags)(task.policy),
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
