"""One task on a phone: places the files, runs the program and reads its output."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.programs.tool_cache import ToolCache
from fleetrank.device_agents.android.programs.tool_call import TASK_FOLDER, run_tool
from fleetrank.device_agents.android.programs.tool_store import ToolStore
from fleetrank.device_agents.android.programs.tools import Tool
from fleetrank.device_agents.android.runners.phone_runner import ToolOutput, ToolReading, ToolRun
from fleetrank.device_agents.android.runners.program_registry import create_phone_runner
from fleetrank.device_agents.android.state.validity import CanaryReading
from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.contract.task import CanaryTask, Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.errors import BadOutputError, TimedOutError, TooSlowError
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Runtime

CANARY_POLICY = MeasurePolicy(
    min_warmup_runs=5, min_warmup_s=0.2, max_warmup_s=1.0, min_runs=20, max_time_s=1.0
)
"""One second: enough for a median within a few per cent, and the ratio's limit is 10 %."""
CANARY_TIMEOUT_S = 60.0
ANSWER_S = 1.0
"""If a phone answers this fast, the phone is not the reason why its program did not end."""
CANARY_RUNTIME = Runtime.TFLITE
CANARY_BACKEND = "xnnpack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of one phone and how to run them there; the caller holds the phone's lease.

    Attributes:
        tools: SHA-256 of each program the phone was registered with, by name.
        stop_requested: asked while a program runs.
    """

    phone: Phone
    store: ToolStore
    tools: dict[str, str]
    stop_requested: StopRequested

    def place(self, task: MeasureTask) -> ToolRun:
        """Places program and artifact on the phone, and plans the call."""
        runner = create_phone_runner(task.execution.runtime)
        sha256 = self.tools[runner.tool]
        cache = ToolCache(self.phone)
        tool_path = cache.place_tool(
            Tool(name=runner.tool, path=self.store.find(runner.tool, sha256), sha256=sha256)
        )
        artifact_path = cache.place_artifact(
            Path(task.artifact_path), task.artifact_sha256, runner.artifact_suffix
        )
        return runner.plan_run(
            tool_path=tool_path,
            artifact_path=artifact_path,
            run_folder=TASK_FOLDER,
            task=task,
        )

    def version_of(self, task: MeasureTask) -> dict[str, str]:
        """The program of a task, as stored in a row."""
        tool = create_phone_runner(task.execution.runtime).tool
        return {f"{tool}_sha256": self.tools[tool]}

    def run(self, task: MeasureTask, placed: ToolRun) -> ToolOutput:
        """Runs a task's program to its end.

        Raises:
            TooSlowError: it did not end in time, although the phone answers.
            FleetError: the same errors as `run_tool`.
        """
        try:
            return run_tool(
                self.phone,
                placed,
                affinity=task.execution.affinity,
                timeout_s=task.timeout_s,
                stop_requested=self.stop_requested,
            )
        except TimedOutError as error:
            if not self._answers():
                raise
            raise TooSlowError(
                f"{placed.argv[0]} did not end within {task.timeout_s:g} s",
                "raise timeout_s of the sweep, or remove the model from the sweep",
            ) from error

    def _answers(self) -> bool:
        try:
            self.phone.shell("true", timeout_s=ANSWER_S)
        except FleetError:
            return False
        return True

    def run_canary(self, canary: CanaryTask) -> tuple[int, CanaryReading]:
        """Runs the canary; returns its latency in ns and the comparison with registration."""
        task = canary_task(canary.artifact_path, canary.artifact_sha256, canary.affinity, "canary")
        latency_ns = latency_of(read(task, self.run(task, self.place(task))))
        ratio = latency_ns / canary.reference_ns
        return latency_ns, CanaryReading(ratio=ratio, spread=canary.spread)


def canary_task(
    artifact_path: str, artifact_sha256: str, affinity: tuple[int, ...] | None, task_id: str
) -> MeasureTask:
    """Returns the canary as a task with one thread."""
    return MeasureTask(
        task_id=task_id,
        artifact_path=artifact_path,
        artifact_sha256=artifact_sha256,
        execution=Execution(runtime=CANARY_RUNTIME, backend=CANARY_BACKEND, affinity=affinity),
        is_trusted=True,
        policy=CANARY_POLICY,
        timeout_s=CANARY_TIMEOUT_S,
    )


def read(task: MeasureTask, output: ToolOutput) -> ToolReading:
    """Parses an output; raises the same errors as `PhoneRunner.read`."""
    return create_phone_runner(task.execution.runtime).read(output)


def latency_of(reading: ToolReading) -> int:
    """The latency of one process: the median of its samples, or the program's own figure.

    Raises:
        BadOutputError: the output contains no latency.
    """
    if reading.samples_ns:
        return round(median(reading.samples_ns))
    if reading.summary is None:
        raise BadOutputError("the program printed no latency", "read its stored output")
    return reading.summary.median_ns
