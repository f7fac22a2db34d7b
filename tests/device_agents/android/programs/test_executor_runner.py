from dataclasses import replace
from pathlib import Path

import pytest
from phone_calls import execution_of, plan_of

from fleetrank.device_agents.android.programs.executor_runner import ExecutorRunner
from fleetrank.device_agents.android.programs.phone_program import READ, reported
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.errors import (
    AgentError,
    BadArtifactError,
    BadOutputError,
    CrashedError,
    OutOfMemoryError,
    UnsupportedError,
)
from fleetrank.foundation.vocabulary import SampleKind

DATA = Path(__file__).parents[3] / "data" / "executor_runner"
HOST = (DATA / "host.txt").read_text()
LOGCAT = (DATA / "logcat.txt").read_text()


def output(
    stdout: str = "",
    stderr: str = "",
    logcat: str | None = None,
    *,
    exit_code: int = 0,
    warmup_runs: int = 1,
) -> ProgramOutput:
    run = ProgramCall(argv=("/t/executor_runner",), log_tag="ExecuTorch", warmup_runs=warmup_runs)
    return ProgramOutput(run=run, exit_code=exit_code, stdout=stdout, stderr=stderr, logcat=logcat)


def test_the_command_line_counts_the_first_inference_and_warm_up() -> None:
    policy = MeasurePolicy(min_warmup_runs=3, min_runs=20)
    run = plan_of(ExecutorRunner.name, execution_of(ExecutorRunner.name), policy)
    assert run.argv == (
        "/t/tool", "--model_path=/a/m", "--num_executions=24", "--cpu_threads=2",
        "--print_output=none",
    )  # fmt: skip
    assert (run.log_tag, run.result_file, run.warmup_runs) == ("ExecuTorch", None, 3)


def test_a_backend_no_file_is_exported_for_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no backend 'gpu'"):
        plan_of(ExecutorRunner.name, execution_of(ExecutorRunner.name, backend="gpu"))


READING = replace(
    READ,
    sample_kind=SampleKind.PER_INFERENCE,
    samples_ns=(9_400_000, 9_300_000, 9_250_001),
    load_ns=21_268_273,
    first_inference_ns=21_944_288,
    warmup_ns=9_500_000,
    warmup_runs=1,
    worker=reported({"threads": 4}),
)


@pytest.mark.parametrize(
    "seen",
    [output(HOST), output(stderr=HOST), output(logcat=LOGCAT), output(HOST, logcat=LOGCAT)],
    ids=["stdout", "stderr", "logcat", "both"],
)
def test_every_execution_is_read_once_wherever_it_is_logged(seen) -> None:
    assert ExecutorRunner().read(seen) == READING


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        (output(), BadOutputError),
        (output((DATA / "old.txt").read_text()), BadOutputError),
        (output(logcat=LOGCAT.replace("Iteration 3", "lost")), BadOutputError),
        (output(logcat="\n".join(LOGCAT.splitlines()[8:])), BadOutputError),
        (output(HOST.partition("Iteration 5")[0]), BadOutputError),
        (output(HOST * 2), BadOutputError),
        (output(HOST, warmup_runs=4), BadOutputError),
        (output(HOST.replace("9.300000", "0.000000")), BadOutputError),
        (output("Failed to parse model file m.pte", exit_code=1), BadArtifactError),
        (output("Loading of method f failed with status 0x14", exit_code=134), UnsupportedError),
        (output("Loading of method forward failed with status 0x1", exit_code=134), CrashedError),
        (output("ERROR: unknown command line flag 'cpu_threads'", exit_code=1), UnsupportedError),
        (output("std::bad_alloc", exit_code=134), OutOfMemoryError),
    ],
)  # fmt: skip
def test_every_bad_end_is_a_typed_error(seen, error) -> None:
    with pytest.raises(error) as caught:
        ExecutorRunner().read(seen)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    "seen",
    [
        output("ERROR: unknown command line flag 'print_output'", exit_code=1),
        output((DATA / "old.txt").read_text(encoding="utf-8")),
    ],
)
def test_a_build_before_the_needed_version_is_refused_with_that_version(seen) -> None:
    with pytest.raises(AgentError) as caught:
        ExecutorRunner().read(seen)
    assert "ExecuTorch 1.3.0 or newer" in caught.value.remedy
