"""LiteRT's `benchmark_model`: TFLite files on CPU, GPU and NNAPI; a summary, no samples.

Memory is the growth of ru_maxrss that the program always prints. Its peak monitor is not used: the
monitor is a thread that wakes every 50 ms during the measurement.
"""

import re

from fleetrank.device_agents.android.programs.benchmark_result import BenchmarkFigures, read_result
from fleetrank.device_agents.android.programs.benchmark_text import (
    Placement,
    printed_count,
    read_delegation,
    read_text,
)
from fleetrank.device_agents.android.programs.phone_program import (
    ProgramCall,
    ProgramOutput,
    ProgramReading,
)
from fleetrank.device_agents.android.programs.program_text import (
    Wording,
    all_text,
    last_words,
    readable,
    refuse_failed,
)
from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask, OptionValue
from fleetrank.device_agents.device_output import refuse_impossible, refuse_unlike_counts
from fleetrank.device_agents.errors import BadOutputError, MissingLibraryError, UnsupportedError
from fleetrank.foundation.vocabulary import MemoryMetric, SampleKind

RESULT_FILE = "result.pb"

MIN_TIMED_S = 1.0
"""Least duration, since a hundred runs of a small network take 20 ms. Source: its default."""

_OPTIONS: dict[str, tuple[type, frozenset[str]]] = {
    "require_full_delegation": (bool, frozenset({"xnnpack", "gpu", "nnapi"})),
    "max_delegated_partitions": (int, frozenset({"gpu", "nnapi"})),
    "xnnpack_force_fp16": (bool, frozenset({"xnnpack"})),
    "gpu_precision_loss_allowed": (bool, frozenset({"gpu"})),
    "gpu_backend": (str, frozenset({"gpu"})),
    "gpu_inference_for_sustained_speed": (bool, frozenset({"gpu"})),
    "nnapi_accelerator_name": (str, frozenset({"nnapi"})),
    "nnapi_execution_preference": (str, frozenset({"nnapi"})),
    "disable_nnapi_cpu": (bool, frozenset({"nnapi"})),
    "nnapi_allow_fp16": (bool, frozenset({"nnapi"})),
}
"""Option to its type and the backends that accept it; the flag has the option's name."""

_BACKEND_FLAGS = {
    "xnnpack": ("--use_xnnpack=true",),
    "builtin": ("--use_xnnpack=false",),
    # Half precision is the delegate's own default. We set it only on request, so it is visible.
    "gpu": ("--use_gpu=true", "--gpu_precision_loss_allowed=false"),
    "nnapi": ("--use_nnapi=true",),
}

_OPTIONAL_FLAGS = frozenset({"--result_file_path"})
"""Flags that an older build may lack; its text contains the same figures."""

_UNKNOWN_FLAGS = re.compile(r"Unconsumed cmdline flags:(.*)")

_WORDING = Wording(
    program="benchmark_model",
    unsupported=(
        "Disallowed CPU fallback detected", "Failed to parse flag", "Failed to apply",
        "Didn't find op for builtin", "nresolved custom op", "unresolved-ops",
        "delegate is not supported",
    ),
    bad_artifact=(
        "Failed to mmap model", "Could not open", "not a valid flatbuffer",
        "not a valid Flatbuffer", "Failed to load model", "Model provided has model identifier",
    ),
)  # fmt: skip


class BenchmarkModel:
    """Backends: `builtin` (LiteRT's own kernels on the CPU), `xnnpack`, `gpu`, `nnapi`.

    It fulfils `PhoneProgram`.
    """

    name = "benchmark_model"
    artifact_suffix = ".tflite"
    capability = Capability(backends=tuple(_BACKEND_FLAGS), option_names=frozenset(_OPTIONS))

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why the program cannot execute this, or `None` when it can."""
        if (unknown := self.capability.why_unsupported(execution, self.name)) is not None:
            return unknown
        for option, value in execution.options:
            kind, backends = _OPTIONS[option]
            if execution.backend not in backends:
                known = ", ".join(sorted(backends))
                return f"option {option} is not supported by {execution.backend}; it is for {known}"
            if type(value) is not kind:
                return f"option {option} is {value!r}; it must be of type {kind.__name__}"
        return None

    def plan_run(
        self, *, program_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ProgramCall:
        """Builds the command line of one repeat."""
        execution = task.execution
        if (refusal := self.why_unsupported(execution)) is not None:
            raise UnsupportedError(refusal, "change the sweep's options")
        result_file = f"{run_folder}/{RESULT_FILE}"
        argv = (
            program_path,
            f"--graph={artifact_path}",
            f"--num_threads={execution.threads}",
            *_policy_flags(task.policy),
            # The last of two equal flags counts, so the user's options follow the defaults.
            *_BACKEND_FLAGS[execution.backend],
            *(f"--{name}={_flag_value(value)}" for name, value in execution.options),
            f"--result_file_path={result_file}",
        )
        return ProgramCall(argv=_last_of_each(argv), result_file=result_file)

    def read(self, output: ProgramOutput) -> ProgramReading:
        """Reads the result from the program's output."""
        refuse_failed(output, _WORDING)
        text = all_text(readable(output))
        _refuse_unknown_flags(text)
        figures, source = _figures(output, text)
        refuse_impossible(figures.summary, min_ns=figures.min_ns, max_ns=figures.max_ns)
        settings: dict[str, OptionValue] = {
            "read_from": source,
            "summary_statistic": "median" if figures.has_median else "mean",
            **_delegate_settings(output.run.argv, text),
        }
        has_memory = figures.overall_memory_bytes is not None
        return ProgramReading(
            sample_kind=SampleKind.TOOL_SUMMARY,
            summary=figures.summary,
            load_ns=figures.init_ns,
            first_inference_ns=figures.first_inference_ns,
            warmup_ns=figures.warmup_ns,
            warmup_runs=figures.warmup_runs,
            memory_metric=MemoryMetric.MAXRSS_GROWTH if has_memory else None,
            load_peak_memory_bytes=figures.init_memory_bytes if has_memory else None,
            run_peak_memory_bytes=figures.overall_memory_bytes,
            settings=tuple(sorted(settings.items())),
        )


def _policy_flags(policy: MeasurePolicy) -> tuple[str, ...]:
    """The program has one time limit for warm-up and timing together, and has no stop rule.

    Runs continue until `num_runs` and `min_secs` are both reached; `max_secs` stops them, so the
    count may be above or below `num_runs`.
    """
    return (
        f"--warmup_runs={policy.min_warmup_runs}",
        f"--warmup_min_secs={policy.min_warmup_s:g}",
        f"--num_runs={policy.min_runs}",
        f"--min_secs={min(MIN_TIMED_S, policy.max_time_s):g}",
        f"--max_secs={policy.max_time_s:g}",
    )


def _flag_value(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _last_of_each(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Keeps one flag of each name: it is not documented which of two a build uses."""
    return tuple({item.partition("=")[0]: item for item in argv}.values())


def _refuse_unknown_flags(text: str) -> None:
    """Rejects flags that the build does not know: it only warns and does not apply them."""
    for found in _UNKNOWN_FLAGS.findall(text):
        unknown = [flag for flag in found.split() if flag.startswith("--")]
        refused = [flag for flag in unknown if flag.partition("=")[0] not in _OPTIONAL_FLAGS]
        if refused:
            raise UnsupportedError(
                f"this build of benchmark_model does not know {' '.join(refused)[:300]}",
                "give a newer build with --tool benchmark_model=PATH, or remove the option",
            )


def _figures(output: ProgramOutput, text: str) -> tuple[BenchmarkFigures, str]:
    """Reads the result file if it is valid, otherwise the text.

    Raises:
        BadOutputError: neither is valid, or the two disagree about the number of runs.
    """
    if not output.result:
        return read_text(text), "text"
    try:
        figures = read_result(output.result)
    except (BadOutputError, MissingLibraryError):
        # The text of the same run may be complete.
        return read_text(text), "text"
    if (printed := printed_count(text)) is not None and figures.summary.count is not None:
        refuse_unlike_counts(figures.summary.count, printed)
    return figures, "result_file"


def _delegate_settings(argv: tuple[str, ...], text: str) -> dict[str, OptionValue]:
    """Reads what the delegate accepted.

    Raises:
        UnsupportedError: it accepted nothing, so the row would show a CPU's latency; or it did
            not accept all nodes although that was required.
    """
    backend = next((b for b, flags in _BACKEND_FLAGS.items() if flags[0] in argv), "builtin")
    if backend == "builtin":
        return {}
    found = read_delegation(text, backend)
    if found.placement is Placement.NONE:
        raise UnsupportedError(
            f"the {backend} delegate took no node of the model: {last_words(text)}",
            "choose another backend for this model: other kernels would run it",
        )
    if "--require_full_delegation=true" in argv and found.placement is not Placement.COMPLETE:
        raise UnsupportedError(
            f"all of the model was required on the {backend} delegate; placement: "
            f"{found.placement.value}, share of nodes {found.node_share}",
            "remove require_full_delegation, or choose another backend for this model",
        )
    settings: dict[str, OptionValue] = {"delegate_placement": found.placement.value}
    if found.node_share is not None:
        settings["delegate_node_share"] = found.node_share
    return settings
