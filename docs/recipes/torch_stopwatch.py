"""`torch_stopwatch`: `.pt2` files on the CPU; it prints one line for each run."""

import re

from fleetrank.device_agents.android.programs.phone_program import PhoneProgram, per_inference
from fleetrank.device_agents.android.programs.program_output import (
    ProgramCall,
    ProgramOutput,
    Wording,
)
from fleetrank.device_agents.android.programs.program_text import readable
from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import MeasureTask

_RUN = re.compile(r"^run took ([1-9][0-9]{0,14}) ns$", re.MULTILINE)


class TorchStopwatch(PhoneProgram):
    """Backend `cpu`. The policy's warm-up runs are not counted."""

    name = "torch_stopwatch"
    artifact_suffix = ".pt2"
    capability = Capability(backends=("cpu",))
    wording = Wording(unsupported=("no such operator",), bad_artifact=("not a .pt2",))

    def call(
        self, program_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ProgramCall:
        """Builds the command line."""
        warmup_runs = task.policy.min_warmup_runs
        runs = str(warmup_runs + task.policy.min_runs)
        threads = str(task.execution.threads)
        argv = (program_path, artifact_path, runs, threads)
        return ProgramCall(argv=argv, warmup_runs=warmup_runs)

    def result(self, output: ProgramOutput) -> Measurement:
        """Reads the result from the program's output."""
        runs_ns = [int(ns) for ns in _RUN.findall(readable(output).stdout)]
        return per_inference(runs_ns, output.run.warmup_runs)
