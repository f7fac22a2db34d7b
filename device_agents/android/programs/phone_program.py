"""The contract of a measuring program on a phone, and the table of its members, `PROGRAMS`.

A member plans a command line and reads the command's output. It never contacts a phone, so a
better parser can read stored raw logs again. A member is imported only on request.

Adding one is one line of the table: each runtime has one program. Its name is then an option of a
phone's device file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetrank.device_agents.android.programs.program_output import (
    ProgramCall,
    ProgramOutput,
    Wording,
)
from fleetrank.device_agents.android.programs.program_text import all_text, error_of, not_a_result
from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
from fleetrank.device_agents.contract.task import Execution, MeasureTask, OptionValue
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes import runner
from fleetrank.foundation.comparison import OutputComparison
from fleetrank.foundation.registry import Registry
from fleetrank.foundation.vocabulary import Origin, Runtime, SampleKind, Status

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

    def compared(self, task: MeasureTask, output: ProgramOutput) -> OutputComparison | None:  # noqa: ARG002
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
            raise error_of(output.exit_code, all_text(output), self.name, self.wording)
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
