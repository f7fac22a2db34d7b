"""The sixteen recorded outputs of a build of 2020; see tests/data/benchmark_model_2020."""

from pathlib import Path

import pytest

from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.errors import CrashedError, UnsupportedError
from fleetrank.foundation.vocabulary import MemoryMetric

DATA = Path(__file__).parents[3] / "data" / "benchmark_model_2020"


def recorded(name: str, *flags: str) -> ProgramOutput:
    parts = {end: (DATA / f"{name}.{end}").read_text() for end in ("out", "err", "rc")}
    return ProgramOutput(
        run=ProgramCall(argv=("/t/benchmark_model", *flags)),
        exit_code=int(parts["rc"]),
        stdout=parts["out"],
        stderr=parts["err"],
    )


def read(name: str, *flags: str) -> Measurement:
    return BenchmarkModel().read(recorded(name, *flags))


@pytest.mark.parametrize(
    ("name", "flags", "count", "latency_ns", "peak_mib"),
    [
        ("plain", ("--num_threads=1",), 27, 2_130_670, 1.20703),
        ("threads", ("--num_threads=4",), 20, 2_304_150, 1.20703),
        ("fp16", (), 132, 445_780, 1.08594),
        ("int", (), 345, 118_310, 1.22266),
        ("onerun", (), 1, 24_287_000, 1.20703),
        ("profiling", (), 17, 2_849_410, 1.45703),
        ("result", ("--result_file_path=/r/result.pb",), 21, 2_605_480, 1.20703),
        ("unknown", ("--use_xnnpack=false",), 20, 2_960_800, 1.20703),
    ],
)
def test_a_run_on_the_cpu_has_its_latency_and_its_memory(
    name: str, flags: tuple[str, ...], count: int, latency_ns: int, peak_mib: float
) -> None:
    reading = read(name, *flags)
    assert (reading.summary.count, reading.summary.latency_ns) == (count, latency_ns)
    assert reading.memory_metric is MemoryMetric.MAXRSS_GROWTH
    assert reading.run_peak_memory_bytes == round(peak_mib * 2**20)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("plain", "--num_threads=4"),
        ("plain", "--use_nnapi=true"),
        ("plain", "--enable_op_profiling=true"),
        ("unknown", "--xnnpack_force_fp16=true"),
        ("unknown", "--gpu_backend=cl"),
        ("unknown", "--external_delegate_path=/t/libX.so"),
        ("unknown", "--input_layer_shape=1,8"),
    ],
)
def test_a_flag_that_the_program_does_not_repeat_was_not_applied(name: str, flag: str) -> None:
    with pytest.raises(UnsupportedError, match=flag.partition("=")[0]):
        read(name, flag)


def test_nnapi_that_reports_an_error_ran_nothing() -> None:
    with pytest.raises(UnsupportedError, match="took no node"):
        read("nnapi", "--use_nnapi=true")


@pytest.mark.parametrize(
    ("name", "flag", "backend"),
    [("xnnpack", "--use_xnnpack=true", "xnnpack"), ("nnapi", "--use_nnapi=true", "nnapi")],
)
def test_a_part_without_a_count_of_nodes_is_no_proof(name: str, flag: str, backend: str) -> None:
    output = recorded(name, flag)
    silent = "".join(
        line for line in output.stderr.splitlines(keepends=True) if "nnapi error" not in line
    )
    with pytest.raises(UnsupportedError, match=f"no proof .* {backend}"):
        BenchmarkModel().read(
            ProgramOutput(run=output.run, exit_code=0, stdout=output.stdout, stderr=silent)
        )


def test_a_program_that_ends_by_a_signal_is_reported_with_it() -> None:
    with pytest.raises(CrashedError, match="SIGABRT"):
        read("gpu", "--use_gpu=true")
