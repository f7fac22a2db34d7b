from pathlib import Path

import pytest
from phone_calls import execution_of, plan_of

from fleetrank.device_agents.android.programs.perf_test import PerfTest
from fleetrank.device_agents.android.programs.phone_program import ProgramCall, ProgramOutput
from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.errors import (
    BadArtifactError,
    BadOutputError,
    CrashedError,
    UnsupportedError,
)
from fleetrank.foundation.vocabulary import SampleKind, Statistic

DATA = Path(__file__).parents[3] / "data" / "perf_test"
STDOUT = (DATA / "stdout.txt").read_text()
RESULT = (DATA / "result.csv").read_bytes()


NAME = PerfTest.name


def output(
    text: str = STDOUT, result: bytes | None = RESULT, *, exit_code: int = 0, warmup_runs: int = 1
) -> ProgramOutput:
    run = ProgramCall(argv=("/t/onnxruntime_perf_test", "m.onnx"), warmup_runs=warmup_runs)
    return ProgramOutput(run=run, exit_code=exit_code, stdout=text, stderr="", result=result)


def test_the_command_line_is_the_task() -> None:
    run = plan_of(NAME, execution_of(NAME), MeasurePolicy(min_warmup_runs=3, min_runs=20))
    assert run.argv == (
        "/t/tool", "-e", "cpu", "-x", "2", "-y", "1", "-m", "times", "-r", "23", "-I",
        "/a/m", "/r/result.csv",
    )  # fmt: skip
    assert (run.result_file, run.warmup_runs) == ("/r/result.csv", 3)


def test_spinning_can_be_switched_off() -> None:
    for spins in (True, False):
        given = execution_of(NAME, options=(("spinning", spins),))
        assert ("-D" in plan_of(NAME, given).argv) is not spins
    for wrong in ({"options": (("spinning", "no"),)}, {"backend": "cuda"}):
        with pytest.raises(UnsupportedError, match=r"spinning|no backend 'cuda'"):
            plan_of(NAME, execution_of(NAME, **wrong))


def test_every_inference_is_a_sample_and_warm_up_is_set_aside() -> None:
    reading = PerfTest().read(output())
    assert reading.sample_kind is SampleKind.PER_INFERENCE
    assert reading.samples_ns == (60_356_200, 54_100_000, 53_315_900, 52_942_200)
    assert (reading.warmup_runs, reading.warmup_ns) == (1, 91_285_700)
    assert (reading.load_ns, reading.first_inference_ns) == (217_932_000, 85_000_000)
    assert (reading.summary, reading.memory_metric) == (None, None)


@pytest.mark.parametrize(
    "result", [b"m,1.5,1,1,0\nm,1.5,1,1,1\n" + RESULT, RESULT + b"\nMin Latency is 0.05sec\n"]
)
def test_only_the_rows_of_the_last_run_count(result) -> None:
    assert len(PerfTest().read(output(result=result)).samples_ns) == 4


def test_a_first_inference_below_a_millisecond_is_not_known() -> None:
    reading = PerfTest().read(output(STDOUT.replace("cost: 85 ms", "cost: 0 ms")))
    assert (reading.first_inference_ns, len(reading.samples_ns)) == (None, 4)


@pytest.mark.parametrize("name", ["stdout.txt", "newer.txt"])
def test_without_a_file_the_printed_statistics_stand(name) -> None:
    reading = PerfTest().read(output((DATA / name).read_text(), None))
    assert reading.sample_kind is SampleKind.TOOL_SUMMARY
    assert reading.summary == ToolSummary(
        count=5,
        latency_ns=60_356_200,
        statistic=Statistic.MEDIAN,
        mean_ns=62_400_000,
        p90_ns=91_285_700,
        p95_ns=91_285_700,
        p99_ns=91_285_700,
    )


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        (output("", None), BadOutputError),
        (output(result=RESULT[:140]), BadOutputError),
        (output(result=RESULT.replace(b",382,3", b",382,7")), BadOutputError),
        (output(result=RESULT.replace(b"0.0541", b"0")), BadOutputError),
        (output(warmup_runs=5), BadOutputError),
        (output("XNNPACK is not supported in this build", None, exit_code=255), UnsupportedError),
        (output("failed:Protobuf parsing failed.", None, exit_code=255), BadArtifactError),
        (output("", None, exit_code=1), CrashedError),
    ],
)
def test_every_bad_end_is_a_typed_error(seen, error) -> None:
    with pytest.raises(error) as caught:
        PerfTest().read(seen)
    assert type(caught.value) is error
