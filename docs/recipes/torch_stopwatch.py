"""`torch_stopwatch`: `.pt2` files on the CPU; it prints one line for each run."""

import re
from dataclasses import replace

from fleetrank.device_agents.android.programs.phone_program import (
    READ,
    ProgramCall,
    ProgramOutput,
    Wording,
    not_a_result,
    readable,
    refuse_failed,
)
from fleetrank.device_agents.contract.agent import Capability
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.foundation.vocabulary import SampleKind

_RUN = re.compile(r"^run took ([1-9][0-9]{0,14}) ns$", re.MULTILINE)
_WORDING = Wording(
    program="torch_stopwatch", unsupported=("no such operator",), bad_artifact=("not a .pt2",)
)


class TorchStopwatch:
    """Backend `cpu`. The policy's warm-up runs are not counted."""

    name = "torch_stopwatch"
    artifact_suffix = ".pt2"
    capability = Capability(backends=("cpu",))

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why the program cannot execute this, or `None` when it can."""
        return self.capability.why_unsupported(execution, self.name)

    def why_not_profiled(self, execution: Execution) -> str | None:
        """Says why the program cannot report where the time of this goes, or `None`."""
        return f"{self.name} prints no times of operators"

    def plan_run(
        self, *, program_path: str, artifact_path: str, run_folder: str, task: MeasureTask
    ) -> ProgramCall:
        """Builds the command line of one repeat."""
        warmup_runs = task.policy.min_warmup_runs
        runs = str(warmup_runs + task.policy.min_runs)
        threads = str(task.execution.threads)
        argv = (program_path, artifact_path, runs, threads)
        return ProgramCall(argv=argv, warmup_runs=warmup_runs)

    def read(self, output: ProgramOutput) -> Measurement:
        """Reads the result from the program's output."""
        refuse_failed(output, _WORDING)
        runs_ns = [int(ns) for ns in _RUN.findall(readable(output).stdout)]
        n_warmup = output.run.warmup_runs
        if len(runs_ns) <= n_warmup:
            raise not_a_result(f"{len(runs_ns)} runs, of which {n_warmup} are warm-up")
        return replace(
            READ,
            sample_kind=SampleKind.PER_INFERENCE,
            samples_ns=tuple(runs_ns[n_warmup:]),
            warmup_runs=n_warmup,
        )
