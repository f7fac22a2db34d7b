"""Tasks for the programs of phones, and the calls that they become."""

from fleetrank.device_agents.android.programs.phone_program import PROGRAMS, PhoneProgram
from fleetrank.device_agents.android.programs.program_output import ProgramCall
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import Runtime

RUNTIMES = {
    "benchmark_model": (Runtime.TFLITE, "xnnpack"),
    "ort_runner": (Runtime.ONNX, "cpu"),
    "executor_runner": (Runtime.EXECUTORCH, "xnnpack"),
}
assert sorted(RUNTIMES) == sorted(PROGRAMS)


def program_of(name: str) -> PhoneProgram:
    return PROGRAMS.load(name)()


def execution_of(name: str, *inputs: ModelInput, **fields: object) -> Execution:
    runtime, backend = RUNTIMES[name]
    given = {"runtime": runtime, "backend": backend, "threads": 2, "inputs": inputs, **fields}
    return Execution(**given)  # type: ignore[arg-type]


def plan_of(
    name: str, execution: Execution, policy: MeasurePolicy | None = None, **fields: object
) -> ProgramCall:
    """The call for a file `/a/m`, with the program in `/t` and its results in `/r`."""
    return program_of(name).plan_run(
        program_path="/t/tool",
        artifact_path="/a/m",
        run_folder="/r",
        task=task_of(execution, policy, **fields),
    )


def task_of(
    execution: Execution, policy: MeasurePolicy | None = None, **fields: object
) -> MeasureTask:
    given = {"task_id": "t", "artifact_path": "/m", "artifact_sha256": "0" * 64, **fields}
    return MeasureTask(execution=execution, policy=policy or MeasurePolicy(), **given)  # type: ignore[arg-type]
