"""The contract of a measuring program on a phone, and the table of its members, `PROGRAMS`.

A member plans a command line and reads the command's output. It never contacts a phone, so a
better parser can read stored raw logs again. A member is imported only on request.

Adding one is one line of the table: each runtime has one program. Its name is then an option of a
phone's device file.
"""

import math
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.contract.agent import Capability
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
from fleetrank.device_agents.contract.task import Execution, MeasureTask, OptionValue
from fleetrank.device_agents.device_output import without_long_lines
from fleetrank.device_agents.errors import (
    BadArtifactError,
    BadOutputError,
    CrashedError,
    KilledError,
    OutOfMemoryError,
    UnfitConditionsError,
    UnsupportedError,
)
from fleetrank.device_agents.runtimes import runner
from fleetrank.foundation.comparison import Comparison
from fleetrank.foundation.errors import FleetError, says_out_of_memory
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import NS_PER_S, Origin, Runtime, SampleKind, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The texts with which one program reports failures; searched only if it failed.

    Attributes:
        unsupported: texts for missing flags, operators and delegates.
        bad_artifact: texts for a file that it cannot read.
        build: the build that a user can give instead.
    """

    unsupported: tuple[str, ...]
    bad_artifact: tuple[str, ...]
    build: str = "another build of the program"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCall:
    """One call of a program.

    Attributes:
        argv: `argv[0]` is the program's path on the phone; no item is interpreted as shell code.
        result_file: path on the phone that the program may write. A missing file is not an error:
            the binary may not know the flag or may fail. `None` if no file is requested.
        log_tag: logcat tag to clear before and to read after the run, for programs that write
            there instead of to standard output; `None` if logcat is not used.
        warmup_runs: timed runs to exclude, for programs that have no warm-up.
        library: file name of a library beside the program that the call needs; `None` without one.
        library_folder: folder on the phone where the program finds libraries that were given with
            it; `None` if none were given.
        inputs: content of the file of inputs, and
        inputs_file: its path on the phone; `None` if the program makes its inputs itself.
        outputs_file: path on the phone of the outputs to compare; `None` if none are compared.
    """

    argv: tuple[str, ...]
    result_file: str | None = None
    log_tag: str | None = None
    warmup_runs: int = 0
    library: str | None = None
    library_folder: str | None = None
    inputs: bytes = field(default=b"", repr=False)
    inputs_file: str | None = None
    outputs_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOutput:
    """The results of one call.

    Attributes:
        run: the call; the parser needs it to judge the output.
        exit_code: as the phone's shell reports it: 128 + n for signal n.
        result: bytes of the result file; `None` if no file was written.
        logcat: lines of the tag, as `logcat -d -s TAG` prints them.
        outputs: bytes of the file of outputs; not part of the stored log.
    """

    run: ProgramCall
    exit_code: int
    stdout: str
    stderr: str
    result: bytes | None = None
    logcat: str | None = None
    outputs: bytes | None = field(default=None, repr=False)


READ = Measurement(task_id="", status=Status.OK, origin=Origin.MEASURED)
"""What a program's output is read into: `replace` it; the agent adds task, origin and the rest.

Samples are empty for a program that prints only a summary; `worker` has what it reports about its
version and its settings; a profile has no latency.
"""


def reported(settings: Mapping[str, OptionValue]) -> WorkerFacts:
    """What a program reports about its settings."""
    return WorkerFacts(settings=tuple(sorted(settings.items())))


def per_inference(times_ns: Sequence[int], n_warmup: int) -> Measurement:
    """What a program that prints every inference is read into; the first ones are warm-up.

    Raises:
        BadOutputError: no other inference is left.
    """
    if len(times_ns) <= n_warmup:
        raise not_a_result(f"{len(times_ns)} runs, of which {n_warmup} are warm-up")
    return replace(
        READ,
        sample_kind=SampleKind.PER_INFERENCE,
        samples_ns=tuple(times_ns[n_warmup:]),
        warmup_ns=sum(times_ns[:n_warmup]),
        warmup_runs=n_warmup,
    )


class PhoneProgram:
    """One program, its flags and its text. The module imports no heavy library at its top.

    A member states the attributes and has the functions `call` and `result`.

    Attributes:
        name: file name of the program.
        artifact_suffix: with its dot. Programs and people recognise formats by it.
        runs_for_a_time: whether it can follow `min_time_s`.
    """

    name: str
    artifact_suffix: str
    capability: Capability
    wording: Wording
    runs_for_a_time = False

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why the program cannot execute this, or `None`; does not contact a phone."""
        reason = self.why_unknown(execution)
        workload = execution.workload
        if reason is not None or workload.steps is None:
            return reason or self.why_not_stated(execution)
        return (
            f"{self.name} repeats one inference and cannot run a prompt and its steps: measure "
            f"prefill@{workload.length} and decode@{workload.context_tokens}"
        )

    def why_unknown(self, execution: Execution) -> str | None:
        """Says which name the program does not have, or `None`."""
        return self.capability.why_unsupported(execution, self.name)

    def why_not_stated(self, execution: Execution) -> str | None:  # noqa: ARG002
        """Says which value of an option or input it cannot be given, or `None`."""
        return None

    def why_not_profiled(self, execution: Execution) -> str | None:  # noqa: ARG002
        """Says why the program cannot report where the time of this goes, or `None`."""
        return f"{self.name} prints no times of operators"

    def plan_run(
        self, *, program_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ProgramCall:
        """Builds the command line of one repeat; all paths are on the phone.

        Affinity is not included: the agent puts `taskset MASK` before `argv`.

        Raises:
            UnsupportedError: an option has a value that the program does not accept.
        """
        if (refusal := self.why_unsupported(task.execution)) is not None:
            raise UnsupportedError(refusal, "change the sweep's options")
        if task.policy.min_time_s > 0 and not self.runs_for_a_time:
            raise UnsupportedError(
                f"{self.name} runs a number of inferences, so it cannot follow min_time_s",
                "measure sustained throughput on phones with runtime tflite (benchmark_model)",
            )
        return self.call(program_path, artifact_path, run_folder, task)

    def call(
        self, program_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ProgramCall:
        """The command line of a task that the program supports."""
        raise NotImplementedError

    def input_bytes(self, task: MeasureTask) -> bytes:  # noqa: ARG002
        """The content of the file of inputs, of a program whose call names one.

        Raises:
            FleetError: the file of the task takes no such inputs.
        """
        return b""

    def compared(self, task: MeasureTask, output: ProgramOutput) -> Comparison | None:  # noqa: ARG002
        """The outputs on the phone beside those of the network in fp32; `None` without them.

        Raises:
            WrongOutputError: the file computes something else there.
            BadOutputError: the outputs cannot be read.
        """
        return None

    def task_that_proves(self, task: MeasureTask, output: ProgramOutput) -> MeasureTask | None:  # noqa: ARG002
        """A stricter task that ends badly if what an output leaves open is not so.

        Returns:
            What to run once in its place; `None` if the output leaves nothing open.
        """
        return None

    def read(self, output: ProgramOutput) -> Measurement:
        """Reads the output of one call, whatever its content, into `READ`.

        Raises:
            BadArtifactError: the program rejects the file.
            UnsupportedError: the program lacks a flag, an operator or a delegate, or it has placed
                less on the delegate than was required.
            OutOfMemoryError: an allocation failed.
            CrashedError: a signal ended it or it reported a failure, for an unknown reason.
            KilledError: another program killed it; the repeat can be retried.
            BadOutputError: it ended normally, but its text contains no result.
        """
        if output.exit_code != 0:
            raise _error_of(output.exit_code, all_text(output), self.name, self.wording)
        return self.result(output)

    def result(self, output: ProgramOutput) -> Measurement:
        """Reads the output of a call that ended well."""
        raise NotImplementedError


_FOLDER = "fleetrank.device_agents.android.programs"
_TABLE = (
    (Runtime.TFLITE, "benchmark_model", f"{_FOLDER}.benchmark_model:BenchmarkModel"),
    (Runtime.EXECUTORCH, "executor_runner", f"{_FOLDER}.executor_runner:ExecutorRunner"),
    (Runtime.ONNX, "ort_runner", f"{_FOLDER}.ort_runner:OrtRunner"),
)
PROGRAMS = Registry[type[PhoneProgram]]("program", {name: member for _, name, member in _TABLE})


def create_program(runtime: Runtime) -> PhoneProgram:
    """Makes the program of a runtime.

    Raises:
        UnsupportedError: no program on a phone runs it; the remedy names the supported runtimes.
    """
    names = {one: name for one, name, _ in _TABLE}
    if runtime not in names:
        known = ", ".join(sorted(names))
        raise UnsupportedError(f"no program runs {runtime.value} on a phone", f"use {known}")
    return PROGRAMS.load(names[runtime])()


def default_backend(runtime: Runtime) -> str:
    """The backend on a phone if a sweep names none; that of a processor if no program runs it."""
    try:
        return create_program(runtime).capability.default_backend
    except UnsupportedError:
        return runner.default_backend(runtime)


def why_unsupported(execution: Execution) -> str | None:
    """Says why no program on a phone supports this, or `None`; does not contact a phone."""
    try:
        return create_program(execution.runtime).why_unsupported(execution)
    except UnsupportedError as error:
        return str(error)


def why_not_profiled(execution: Execution) -> str | None:
    """Says why no program on a phone can profile this, or `None`; does not contact a phone."""
    reason = why_unsupported(execution)
    return reason or create_program(execution.runtime).why_not_profiled(execution)


# Reads what the programs have in common: figures in their text, and the reason of a failure.

NUMBER = r"-?[0-9]++(?:\.[0-9]*+)?+(?:[eE][-+]?[0-9]{1,4}+)?+"
"""A number as C++ prints it, also as `1.04176e+06`. The pattern never backtracks."""


_DAY_NS = 86_400 * NS_PER_S
"""No repeat lasts a day; a longer time has another unit or is not a valid number."""

_FIELD = re.compile(rf"(?<![A-Za-z0-9_])([A-Za-z0-9_]++)=({NUMBER})", re.ASCII)


def to_ns(value: str | float, ns_per_unit: int, what: str) -> int:
    """A time in nanoseconds.

    Raises:
        BadOutputError: negative, not finite, or longer than a day.
    """
    ns = float(value) * ns_per_unit
    if not (math.isfinite(ns) and 0 <= ns < _DAY_NS):
        raise not_a_result(f"{what} is {str(value)[:40]}")
    return round(ns)


def to_latency_ns(value: str | float, ns_per_unit: int, what: str) -> int:
    """A positive time in nanoseconds: an inference of 0 ns means that the figure was lost.

    Raises:
        BadOutputError: the same as `to_ns`, or zero.
    """
    ns = to_ns(value, ns_per_unit, what)
    if ns == 0:
        raise not_a_result(f"{what} is zero")
    return ns


def named_fields(text: str) -> Mapping[str, str]:
    """`a=1 b=2.5` as a mapping; fields without a number are skipped."""
    return dict(_FIELD.findall(text))


def not_a_result(why: str) -> BadOutputError:
    """The error for a program that ended normally but whose output is not a plausible result."""
    return BadOutputError(
        f"the output is not a result: {why}",
        "read the raw log: another version of the program may print another format",
    )


TAIL_CHARACTERS = 600
"""Most characters of a program's last output that a message keeps."""

_FROM_SIGNAL = 128
"""A POSIX shell reports a program ended by signal n as 128 + n."""

_NOT_RUNNABLE = (
    "CANNOT LINK EXECUTABLE", "Exec format error", "not executable", "inaccessible or not found",
    "has unexpected e_machine",
)  # fmt: skip
"""How Android's linker and shell reject a binary of another ABI or without its libraries."""

_SMALL_PAGES = "cannot be smaller than system page size"
"""Source: linker_phdr.cpp of bionic, Android 15."""
_NOT_PINNED = re.compile(r"^taskset: [^\n]*Invalid argument", re.MULTILINE)
"""Source: sched_setaffinity(2): EINVAL when no core of the mask is online. Exit code 1."""


def readable(output: ProgramOutput) -> ProgramOutput:
    """The output, prepared for regular expressions; an old stored log may have longer lines."""
    return replace(
        output,
        stdout=without_long_lines(output.stdout),
        stderr=without_long_lines(output.stderr),
        logcat=None if output.logcat is None else without_long_lines(output.logcat),
    )


def all_text(output: ProgramOutput) -> str:
    """All text of the program; versions write to different streams."""
    return "\n".join(part for part in (output.stdout, output.stderr, output.logcat) if part)


def last_words(text: str) -> str:
    """The end of a text, for a message."""
    return text.strip()[-TAIL_CHARACTERS:]


def _error_of(exit_code: int, text: str, name: str, wording: Wording) -> FleetError:
    words = last_words(text)
    ending = _signal_name(exit_code)
    program = name if ending is None else f"{name}, ended by {ending},"
    if says_out_of_memory(text):
        return OutOfMemoryError(
            f"{program} could not allocate memory: {words}",
            "free memory on the phone, or remove the model from the sweep",
        )
    if (not_started := _not_started(exit_code, text, program)) is not None:
        return not_started
    if _says(text, wording.unsupported):
        return UnsupportedError(
            f"{program} does not support the request: {words}",
            f"choose another backend or option, or give {wording.build}",
        )
    if _says(text, wording.bad_artifact):
        return BadArtifactError(
            f"{program} rejects the file: {words}", "export it again, or check where it comes from"
        )
    return _ended_badly(name, exit_code, words)


def _not_started(exit_code: int, text: str, program: str) -> FleetError | None:
    """The error of a program that Android did not start; `None` if it started."""
    words = last_words(text)
    if _NOT_PINNED.search(text):
        return UnfitConditionsError(
            f"the cores to run on are offline: {words}",
            "it will be retried; if all retries fail, register the phone again, or measure with "
            "affinity: free",
        )
    if _SMALL_PAGES in text:
        return UnsupportedError(
            f"{program} is built for smaller memory pages than this phone has: {words}",
            "link it with -Wl,-z,max-page-size=16384, or build it with NDK r28 or newer",
        )
    if exit_code in (126, 127) or _says(text, _NOT_RUNNABLE):
        return UnsupportedError(
            f"{program} does not run on this phone: {words}",
            "give a build for the phone's ABI, with the libraries it needs: `tool=NAME=PATH`",
        )
    return None


def _says(text: str, signs: tuple[str, ...]) -> bool:
    return any(sign in text for sign in signs)


def _ended_badly(program: str, exit_code: int, words: str) -> FleetError:
    if exit_code == _FROM_SIGNAL + signal.SIGKILL:
        return KilledError(
            f"{program} was killed; last output: {words}",
            "the phone may have run out of memory; close its apps and try again",
        )
    ending = _signal_name(exit_code) or f"exit code {exit_code}"
    return CrashedError(
        f"{program} ended with {ending}; last output: {words}",
        "the program or the file may be defective; try another version of either",
    )


def _signal_name(exit_code: int) -> str | None:
    """The signal that ended the program; `None` if it ended itself."""
    try:
        return signal.Signals(exit_code - _FROM_SIGNAL).name
    except ValueError:
        return None


# Flags of `benchmark_model` that choose a delegate, and the options that each delegate accepts.
#
# A backend is `builtin` (LiteRT's own kernels), a delegate that the program contains, or
# `external:NAME`: the library `libNAME.so`, which lies beside the program on the phone.
#
# Source: tflite/tools/delegates/*_provider.cc and tools/benchmark/benchmark_tflite_model.cc of
#     TensorFlow 1.14 to 2.20 and LiteRT; QNN's own command line in tensorflow issue 83344.

EXTERNAL = "external:NAME"
"""How messages write the backend of a library that the user gives."""
_EXTERNAL = re.compile(r"external:([A-Za-z0-9_][A-Za-z0-9_.+-]{0,50})", re.ASCII)
_EXTERNAL_PATH = "--external_delegate_path="

_FOR_LIBRARY = "external_delegate_options"
_FLAGS_FOLDER = "{folder}"
"""In that option, it is the program's folder on the phone, which a user cannot know."""

XNNPACK, NO_XNNPACK = "--use_xnnpack=true", "--use_xnnpack=false"
REQUIRE_ALL = "require_full_delegation"
REQUIRED_ALL = f"--{REQUIRE_ALL}=true"
_BACKEND_FLAGS = {
    "xnnpack": (XNNPACK,),
    "builtin": (NO_XNNPACK,),
    # Half precision is the delegate's own default. We set it only on request, so it is visible.
    "gpu": ("--use_gpu=true", "--gpu_precision_loss_allowed=false"),
    "nnapi": ("--use_nnapi=true",),
}

_OPTIONS: dict[str, tuple[type, frozenset[str]]] = {
    REQUIRE_ALL: (bool, frozenset({"xnnpack", "gpu", "nnapi", EXTERNAL})),
    "max_delegated_partitions": (int, frozenset({"gpu", "nnapi"})),
    "xnnpack_force_fp16": (bool, frozenset({"xnnpack"})),
    "gpu_precision_loss_allowed": (bool, frozenset({"gpu"})),
    "gpu_backend": (str, frozenset({"gpu"})),
    "gpu_inference_for_sustained_speed": (bool, frozenset({"gpu"})),
    "nnapi_accelerator_name": (str, frozenset({"nnapi"})),
    "nnapi_execution_preference": (str, frozenset({"nnapi"})),
    "disable_nnapi_cpu": (bool, frozenset({"nnapi"})),
    "nnapi_allow_fp16": (bool, frozenset({"nnapi"})),
    _FOR_LIBRARY: (str, frozenset({EXTERNAL})),
}
"""Option to its type and the backends that accept it; the flag has the option's name."""

CAPABILITY = Capability(backends=(*_BACKEND_FLAGS, EXTERNAL), option_names=frozenset(_OPTIONS))


_LABELS: Mapping[str, tuple[str, ...]] = {
    "num_threads": ("num threads", "#threads used for cpu inference"),
    "use_xnnpack": ("use xnnpack",),
    "xnnpack_force_fp16": ("xnnpack_force_fp16",),
    "use_gpu": ("use gpu",),
    "gpu_precision_loss_allowed": ("allow lower precision in gpu",),
    "gpu_backend": ("gpu backend",),
    "gpu_inference_for_sustained_speed": ("prefer maximizing the throughput in gpu",),
    "use_nnapi": ("use nnapi",),
    "nnapi_accelerator_name": ("nnapi accelerator name",),
    "nnapi_execution_preference": ("nnapi execution preference",),
    "disable_nnapi_cpu": ("disable nnapi cpu", "disable_nnapi_cpu"),
    "nnapi_allow_fp16": ("allow fp16 in nnapi",),
    "external_delegate_path": ("external delegate path",),
    _FOR_LIBRARY: ("external delegate options",),
    REQUIRE_ALL: ("require full delegation",),
    "max_delegated_partitions": ("max number of delegated partitions",),
    "enable_op_profiling": ("enable op profiling",),
    "input_layer": ("input layers",),
    "input_layer_shape": ("input shapes",),
    "input_layer_value_range": ("input value ranges",),
}
"""Flag to the names under which versions repeat its value, in lower case."""
_REPEATED = re.compile(r"^(?:INFO: )?([A-Za-z#][^:\[\]\n]{1,60}?) ?: \[([^\n]*)\]", re.MULTILINE)
_UNKNOWN = re.compile(r"Unconsumed cmdline flags:(.*)")
_NAMES_UNKNOWN = "log parameter values verbosely"
"""A build with this parameter repeats only what was set, and warns of a flag it does not know."""
_BOOLEANS = {"true": "1", "false": "0"}


def library_of(backend: str) -> str | None:
    """The file name of an external delegate; `None` for every other backend."""
    named = _EXTERNAL.fullmatch(backend)
    return None if named is None else f"lib{named[1]}.so"


def backend_of_library(file_name: str) -> str | None:
    """The backend of an external delegate's library; `None` if the file has no such name."""
    backend = f"external:{file_name.removeprefix('lib').removesuffix('.so')}"
    return backend if library_of(backend) == file_name else None


def why_not_delegated(execution: Execution, program: str) -> str | None:
    """Says why the program has no such backend, or the backend no such option; else `None`."""
    kind = EXTERNAL if library_of(execution.backend) else execution.backend
    known = replace(execution, backend=kind)
    if (unknown := CAPABILITY.why_unsupported(known, program)) is not None:
        return unknown
    for option, value in execution.options:
        wanted, backends = _OPTIONS[option]
        if kind not in backends:
            accepted = ", ".join(sorted(backends))
            return f"option {option} is not supported by {kind}; it is for {accepted}"
        if type(value) is not wanted:
            return f"option {option} is {value!r}; it must be of type {wanted.__name__}"
    return None


def delegate_flags(execution: Execution, folder: str) -> tuple[str, ...]:
    """The flags of a backend and its options.

    Args:
        execution: what `why_not_delegated` accepts.
        folder: of the program on the phone, with the libraries that were given with it.
    """
    library = library_of(execution.backend)
    chosen = (
        _BACKEND_FLAGS[execution.backend]
        if library is None
        else (f"{_EXTERNAL_PATH}{folder}/{library}",)
    )
    options = {name: _flag_value(value) for name, value in execution.options}
    if _FOR_LIBRARY in options:
        options[_FOR_LIBRARY] = options[_FOR_LIBRARY].replace(_FLAGS_FOLDER, folder)
    # The last of two equal flags counts, so the user's options follow the defaults.
    return (*chosen, *(f"--{name}={value}" for name, value in options.items()))


def backend_of(argv: tuple[str, ...]) -> str:
    """The kind of backend of a command line; it is `EXTERNAL` for every external delegate."""
    if any(item.startswith(_EXTERNAL_PATH) for item in argv):
        return EXTERNAL
    return next((b for b, flags in _BACKEND_FLAGS.items() if flags[0] in argv), "builtin")


def _flag_value(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def flags_not_applied(argv: tuple[str, ...], text: str) -> Iterator[str]:
    """The flags that the build names as unknown, or does not repeat with their values.

    Builds before 2021 ignore a flag that they do not know without a word, and repeat the value of
    every flag that they know. A text that repeats nothing proves nothing.
    """
    for found in _UNKNOWN.findall(text):
        yield from (word for word in found.split() if word.startswith("--"))
    repeated: dict[str, set[str]] = {}
    for label, value in _REPEATED.findall(text):
        repeated.setdefault(label.lower(), set()).add(value)
    tells_all = bool(repeated) and _NAMES_UNKNOWN not in repeated
    for flag in argv:
        name, _, value = flag.removeprefix("--").partition("=")
        if (labels := _LABELS.get(name)) is None:
            continue
        shown = {value for label in labels for value in repeated.get(label, ())}
        if (shown or tells_all) and _BOOLEANS.get(value, value) not in shown:
            yield flag


def has_required_all(argv: tuple[str, ...], text: str) -> bool:
    """Whether the program ended well although a node outside the delegate would have failed it.

    Args:
        argv: the command line.
        text: of a run that ended well, in which `flags_not_applied` finds none.
    """
    return REQUIRED_ALL in argv and _REPEATED.search(text) is not None
