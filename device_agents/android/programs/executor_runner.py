"""ExecuTorch's `executor_runner`: `.pte` files; it logs every execution, on Android to logcat.

The exporter decides where the graph runs, so the backend is a property of the file. Inputs are
ones. The program reports no memory; its only time limit is the task's limit.
Source: examples/portable/executor_runner/executor_runner.cpp of ExecuTorch 1.3.0 to 1.5. Lines of
single executions, the load time and `--print_output` exist from 1.3.0 on (2026-05-26); older builds
end with an unknown flag or print only one total, and are rejected.
"""

import re
from dataclasses import replace

from fleetrank.device_agents.android.programs.phone_program import (
    PhoneProgram,
    per_inference,
    reported,
)
from fleetrank.device_agents.android.programs.program_output import (
    ProgramCall,
    ProgramOutput,
    Wording,
)
from fleetrank.device_agents.android.programs.program_text import (
    NUMBER,
    not_a_result,
    readable,
    to_latency_ns,
    to_ns,
)
from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.workload import IMAGE

LOG_TAG = "ExecuTorch"

_ITERATION = re.compile(rf"Iteration ([0-9]{{1,9}}) of ([0-9]{{1,9}}): ({NUMBER}) ms\b")
_LOADED = re.compile(rf"Model loaded in ({NUMBER}) ms\b")
_TOTAL = "Model executed successfully"
_THREADS = re.compile(r"Resetting threadpool with num threads = ([0-9]{1,4})\b")

_BUILD = "a build of ExecuTorch 1.3.0 or newer, with logging enabled"


class ExecutorRunner(PhoneProgram):
    """Backends: `xnnpack` and `portable`, as the file was exported. It has no options.

    The first execution is the first inference. The policy's warm-up runs follow and are not
    counted.
    """

    name = "executor_runner"
    artifact_suffix = ".pte"
    capability = Capability(backends=("xnnpack", "portable"))
    wording = Wording(
        build=_BUILD,
        # Statuses of runtime/core/error.h: missing features, and defects of a file.
        unsupported=(
            "unknown command line flag", "status 0x10", "status 0x11", "status 0x14",
            "status 0x20", "status 0x30", "Missing operator",
        ),
        bad_artifact=(
            "Failed to parse model file", "FileDataLoader::from() failed", "status 0x23",
            "status 0x24", "Program has no methods",
        ),
    )  # fmt: skip

    def why_not_stated(self, execution: Execution) -> str | None:
        """Stated inputs are not followed."""
        # Every built-in decoder has the token 1 and the position 1, and computes over all slots.
        if not execution.inputs or execution.workload != IMAGE:
            return None
        return (
            "executor_runner takes the sizes of inputs from the file and sets every value to 1, "
            "so it cannot follow the card's [[inputs]]"
        )

    def why_not_profiled(self, execution: Execution) -> str | None:  # noqa: ARG002
        """Always: the flag `--etdump_path` exists in builds that trace every run.

        Source: examples/portable/executor_runner/executor_runner.cpp of ExecuTorch 1.3, and
        tools/cmake/preset/android.cmake, which sets EXECUTORCH_ENABLE_EVENT_TRACER to OFF.
        """
        return (
            "executor_runner for Android is built without its event tracer, and a build with it is "
            "slower in every run: profile the file on a host, or profile tflite on the phone"
        )

    def call(
        self,
        program_path: str,
        artifact_path: str,
        run_folder: str,  # noqa: ARG002 - the program writes no file
        task: MeasureTask,
    ) -> ProgramCall:
        """Builds the command line."""
        policy = task.policy
        argv = (
            program_path,
            f"--model_path={artifact_path}",
            f"--num_executions={1 + policy.min_warmup_runs + policy.min_runs}",
            f"--cpu_threads={task.execution.threads}",
            "--print_output=none",
        )
        return ProgramCall(argv=argv, log_tag=LOG_TAG, warmup_runs=policy.min_warmup_runs)

    def result(self, output: ProgramOutput) -> Measurement:
        """Reads the result from the program's output."""
        text = _text_with_iterations(readable(output))
        first_ns, *rest_ns = _iterations_ns(text)
        loaded, threads = _LOADED.search(text), _THREADS.search(text)
        return replace(
            per_inference(rest_ns, output.run.warmup_runs),
            load_ns=to_ns(loaded[1], NS_PER_MS, "the load time") if loaded else None,
            first_inference_ns=first_ns,
            worker=reported({"threads": int(threads[1])} if threads else {}),
        )


def _text_with_iterations(output: ProgramOutput) -> str:
    """Returns one of the streams, never both: a build may log to both."""
    streams = [text for text in (output.stdout, output.stderr, output.logcat) if text]
    for text in streams:
        if _ITERATION.search(text):
            return text
    if any(_TOTAL in text for text in streams):
        raise BadOutputError(
            "this build of executor_runner does not log single executions",
            f"give {_BUILD}",
        )
    raise not_a_result("no execution is logged")


def _iterations_ns(text: str) -> list[int]:
    """All executions in order.

    If logcat's buffer overflows, its oldest lines are lost: a gap is an error.
    """
    found = _ITERATION.findall(text)
    numbers = [int(number) for number, _of, _ms in found]
    asked = {int(of) for _number, of, _ms in found}
    if asked != {len(found)} or numbers != list(range(1, len(found) + 1)):
        raise not_a_result(f"{len(found)} executions are logged, {sorted(asked)[:3]} requested")
    return [to_latency_ns(ms, NS_PER_MS, "an execution") for _number, _of, ms in found]
