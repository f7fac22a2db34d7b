from dataclasses import replace
from pathlib import Path

import pytest
from device_parsers import encode_result
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.benchmark_text import read_result, read_text
from fleetrank.device_agents.android.programs.executor_runner import ExecutorRunner
from fleetrank.device_agents.android.programs.perf_test import PerfTest
from fleetrank.device_agents.android.programs.phone_program import (
    PhoneProgram,
    ProgramCall,
    ProgramOutput,
    backend_of_library,
)
from fleetrank.device_agents.contract.measurement import (
    Measurement,
    ToolSummary,
    failure_from_error,
)
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask, OptionValue
from fleetrank.device_agents.errors import (
    AgentError,
    BadArtifactError,
    BadOutputError,
    CrashedError,
    KilledError,
    OutOfMemoryError,
    StorageFullError,
    TransientError,
    UnfitConditionsError,
    UnsupportedError,
)
from fleetrank.foundation.vocabulary import (
    ErrorKind,
    MemoryMetric,
    Mode,
    Runtime,
    SampleKind,
    Statistic,
)

DATA = Path(__file__).parents[3] / "data" / "benchmark_model"

LITERT_PARTS = {
    "latency_metrics": {
        "avg_ms": 8.56025, "min_ms": 8.39, "max_ms": 9.12, "stddev_ms": 0.112,
        "median_ms": 8.541, "p5_ms": 8.411, "p95_ms": 8.79, "init_ms": 25.174,
        "first_inference_ms": 12.034, "average_warm_up_ms": 8.6402,
    },
    "memory_metrics": {"init_footprint_kb": 17472, "overall_footprint_kb": 30208},
    "misc_metrics": {"model_size_mb": 13.9785, "num_runs": 117, "num_warmup_runs": 58},
}  # fmt: skip
"""The same run as litert.txt."""


PAGE_SIZE = (
    'error: "/data/local/tmp/t": program alignment (4096) cannot be smaller than system page size '
    "(16384)"
)


def settings_of(reading: Measurement) -> dict[str, OptionValue]:
    assert reading.worker is not None
    return dict(reading.worker.settings)


def text_of(name: str) -> str:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def output(
    text: str, *flags: str, exit_code: int = 0, result: bytes | None = None
) -> ProgramOutput:
    run = ProgramCall(argv=("/t/benchmark_model", "--graph=/m.tflite", *flags))
    return ProgramOutput(run=run, exit_code=exit_code, stdout=text, stderr="", result=result)


def task(backend: str = "xnnpack", **options: str | int | bool) -> MeasureTask:
    execution = Execution(
        runtime=Runtime.TFLITE, backend=backend, threads=4, options=tuple(sorted(options.items()))
    )
    return MeasureTask(
        task_id="t", artifact_path="/m.tflite", artifact_sha256="0" * 64, execution=execution
    )


def plan(backend: str = "xnnpack", **options: str | int | bool) -> tuple[str, ...]:
    runner = BenchmarkModel()
    run = runner.plan_run(
        program_path="/t/tool",
        artifact_path="/a/m.tflite",
        run_folder="/r",
        task=task(backend, **options),
    )
    assert run.result_file == "/r/result.pb"
    return run.argv


def test_the_command_line_is_the_task() -> None:
    assert plan() == (
        "/t/tool", "--graph=/a/m.tflite", "--num_threads=4", "--warmup_runs=10",
        "--warmup_min_secs=0.5", "--num_runs=100", "--min_secs=1", "--max_secs=20",
        "--use_xnnpack=true", "--result_file_path=/r/result.pb",
    )  # fmt: skip


def test_the_default_delegate_is_switched_off_for_the_built_in_kernels() -> None:
    assert "--use_xnnpack=false" in plan("builtin")


def test_half_precision_on_the_gpu_is_asked_for_and_never_slipped_in() -> None:
    assert "--gpu_precision_loss_allowed=false" in plan("gpu")
    flags = [flag for flag in plan("gpu", gpu_precision_loss_allowed=True) if "loss" in flag]
    assert flags == ["--gpu_precision_loss_allowed=true"]


def test_options_of_a_delegate_become_flags() -> None:
    argv = plan("nnapi", require_full_delegation=True, nnapi_accelerator_name="a b; $(c)")
    assert "--require_full_delegation=true" in argv
    assert "--nnapi_accelerator_name=a b; $(c)" in argv
    assert "--use_nnapi=true" in argv


@pytest.mark.parametrize(
    ("backend", "options", "why"),
    [
        ("cuda", {}, "no backend 'cuda'"),
        ("xnnpack", {"gpu_backend": "cl"}, "not supported by xnnpack"),
        ("gpu", {"gpu_backend": True}, "of type str"),
        ("gpu", {"max_delegated_partitions": True}, "of type int"),
        ("gpu", {"colour": 1}, "no option 'colour'"),
        ("builtin", {"require_full_delegation": True}, "not supported by builtin"),
        ("external:../x", {}, "no backend 'external:../x'"),
        ("external:", {}, "no backend 'external:'"),
        ("external:Qnn", {"gpu_backend": "cl"}, "not supported by external:NAME"),
        ("gpu", {"external_delegate_options": "a:b"}, "not supported by gpu"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(backend, options, why) -> None:
    assert why in (BenchmarkModel().why_unsupported(task(backend, **options).execution) or "")
    with pytest.raises(UnsupportedError, match=why):
        plan(backend, **options)


def test_there_is_no_compiled_mode() -> None:
    execution = Execution(runtime=Runtime.TFLITE, backend="gpu", mode=Mode.COMPILE)
    assert "no mode" in (BenchmarkModel().why_unsupported(execution) or "")


def test_a_run_of_litert() -> None:
    reading = BenchmarkModel().read(output(text_of("litert"), "--use_xnnpack=true"))
    assert reading.sample_kind is SampleKind.TOOL_SUMMARY
    assert reading.samples_ns == ()
    assert reading.summary == ToolSummary(
        count=117,
        latency_ns=8_541_000,
        statistic=Statistic.MEDIAN,
        mean_ns=8_560_250,
        std_ns=112_000,
        p95_ns=8_790_000,
    )
    assert (reading.load_ns, reading.first_inference_ns) == (25_174_000, 12_034_000)
    assert (reading.warmup_runs, reading.warmup_ns) == (57, 489_097_600)
    assert reading.memory_metric is MemoryMetric.MAXRSS_GROWTH
    assert (reading.load_peak_memory_bytes, reading.run_peak_memory_bytes) == (
        17472 * 1024,
        30208 * 1024,
    )
    assert settings_of(reading) == {
        "delegate_node_share": 1.0,
        "delegate_placement": "complete",
        "read_from": "text",
        "summary_statistic": "median",
    }


def test_the_result_file_and_the_text_of_one_run_agree() -> None:
    from_text = read_text(text_of("litert"))
    from_file = read_result(encode_result(LITERT_PARTS))
    assert (from_file.summary.count, from_file.warmup_runs) == (117, 57)
    for name in ("latency_ns", "mean_ns", "std_ns", "p95_ns"):
        one, other = getattr(from_text.summary, name), getattr(from_file.summary, name)
        assert other == pytest.approx(one, rel=1e-6)
    for name in ("init_ns", "first_inference_ns", "warmup_ns", "overall_memory_bytes"):
        assert getattr(from_file, name) == pytest.approx(getattr(from_text, name), rel=1e-6)


def test_the_result_file_is_preferred() -> None:
    latency = {**LITERT_PARTS["latency_metrics"], "median_ms": 8.6}
    parts = {**LITERT_PARTS, "latency_metrics": latency}
    reading = BenchmarkModel().read(output(text_of("litert"), result=encode_result(parts)))
    assert reading.summary is not None
    assert reading.summary.latency_ns == 8_600_000
    assert settings_of(reading)["read_from"] == "result_file"


@pytest.mark.parametrize("content", [b"", b"\x12", b"garbage" * 9, encode_result({})])
def test_a_damaged_result_file_leaves_the_text(content) -> None:
    reading = BenchmarkModel().read(output(text_of("litert"), result=content))
    assert settings_of(reading)["read_from"] == "text"


def test_a_missing_field_of_the_result_file_is_missing_and_not_zero() -> None:
    figures = read_result(
        encode_result({"latency_metrics": {"avg_ms": 2.5}, "misc_metrics": {"num_runs": 3}})
    )
    assert figures.summary == ToolSummary(
        count=3, latency_ns=2_500_000, statistic=Statistic.MEAN, mean_ns=2_500_000
    )
    assert (figures.init_ns, figures.overall_memory_bytes, figures.warmup_runs) == (None,) * 3


def test_litert_2_is_read_by_its_block_of_results() -> None:
    figures = read_text(text_of("litert2_mean"))
    assert figures.summary == ToolSummary(
        count=10,
        latency_ns=7_430_200_000,
        statistic=Statistic.MEAN,
        mean_ns=7_430_200_000,
        std_ns=9_920_000,
    )
    assert (figures.min_ns, figures.max_ns) == (7_416_400_000, 7_448_860_000)
    assert (figures.init_ns, figures.first_inference_ns) == (23_744_730_000, 7_441_040_000)
    assert (figures.warmup_runs, figures.warmup_ns) == (0, 0)
    assert figures.overall_memory_bytes == round(6391.74 * 2**20)


def test_litert_2_with_its_lines_of_statistics_has_the_median() -> None:
    reading = BenchmarkModel().read(output(text_of("litert2"), "--use_xnnpack=true"))
    assert reading.summary == ToolSummary(
        count=2112,
        latency_ns=462_000,
        statistic=Statistic.MEDIAN,
        mean_ns=464_545,
        std_ns=13_000,
        p95_ns=478_000,
    )
    assert (reading.load_ns, reading.first_inference_ns) == (4_480_000, 1_033_000)
    assert (reading.warmup_runs, reading.run_peak_memory_bytes) == (1054, round(11.51 * 2**20))
    assert (reading.backend_nodes, reading.graph_nodes) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(10 runs)", "(0 runs)"),
        ("(10 runs)", ""),
        ("7430.20 ms", "0.00 ms"),
        ("7430.20 ms (10", "nan ms (10"),
        ("Model initialization:", "Model:"),
    ],
)
def test_a_block_of_results_without_a_latency_is_no_result(old: str, new: str) -> None:
    text = text_of("litert2_mean")
    assert old in text
    with pytest.raises(BadOutputError):
        read_text(text.replace(old, new))


def test_litert_2_does_not_know_the_flag_of_its_default_and_shows_what_it_ran() -> None:
    warning = "WARN: Unconsumed cmdline flags: --use_xnnpack=true\n"
    flags = ("--use_xnnpack=true",)
    assert BenchmarkModel().read(output(warning + text_of("litert2"), *flags)).summary is not None
    silent = text_of("litert2").replace("TfLiteXNNPackDelegate", "Other")
    with pytest.raises(UnsupportedError, match="--use_xnnpack"):
        BenchmarkModel().read(output(warning + silent, *flags))
    off = warning.replace("true", "false")
    with pytest.raises(UnsupportedError, match="--use_xnnpack"):
        BenchmarkModel().read(output(off + text_of("litert2"), "--use_xnnpack=false"))


def test_without_percentiles_the_mean_stands_and_says_so() -> None:
    reading = BenchmarkModel().read(output(text_of("tf2_no_percentiles")))
    assert reading.summary == ToolSummary(
        count=50,
        latency_ns=1_041_760_000,
        statistic=Statistic.MEAN,
        mean_ns=1_041_760_000,
        std_ns=5_120_000,
    )
    assert settings_of(reading)["summary_statistic"] == "mean"
    assert (reading.warmup_runs, reading.warmup_ns) == (0, 0)
    # Its 'Peak memory footprint' is the growth that later versions print.
    assert reading.memory_metric is MemoryMetric.MAXRSS_GROWTH
    assert reading.run_peak_memory_bytes == round(33.0195 * 2**20)


@pytest.mark.parametrize(
    ("name", "mean_ns", "first_ns", "load_ns"),
    [
        ("tf1", 747_733_000, 751_932_000, 21_039_000),
        ("tf1_profiling", 79_760_900, 91_810_000, 38_467_000),
    ],
)
def test_the_closing_line_of_tensorflow_1(name, mean_ns, first_ns, load_ns) -> None:
    reading = BenchmarkModel().read(output(text_of(name)))
    assert reading.summary is not None
    assert (reading.summary.count, reading.summary.mean_ns) == (50, mean_ns)
    assert (reading.first_inference_ns, reading.load_ns) == (first_ns, load_ns)


def test_runs_that_are_all_alike() -> None:
    reading = BenchmarkModel().read(output(text_of("all_same")))
    assert reading.summary == ToolSummary(
        count=100,
        latency_ns=7_000,
        statistic=Statistic.MEDIAN,
        mean_ns=7_000,
        std_ns=0,
        p95_ns=7_000,
    )
    assert settings_of(reading)["summary_statistic"] == "median"


def test_no_timed_run_is_no_result_and_no_zero() -> None:
    with pytest.raises(BadOutputError):
        BenchmarkModel().read(output(text_of("count_zero")))


def test_everything_on_standard_error_is_read_too() -> None:
    run = ProgramCall(argv=("/t/benchmark_model",))
    seen = ProgramOutput(run=run, exit_code=0, stdout="", stderr=text_of("tf1"))
    assert BenchmarkModel().read(seen).summary is not None


def test_a_partial_delegate_is_told_with_its_share_of_nodes() -> None:
    reading = BenchmarkModel().read(output(text_of("tf2_gpu_partial"), "--use_gpu=true"))
    settings = settings_of(reading)
    assert settings["delegate_placement"] == "partial"
    assert settings["delegate_node_share"] == pytest.approx(54 / 65)
    assert (reading.backend_nodes, reading.graph_nodes) == (54, 65)
    switched_off = text_of("litert").replace("Use xnnpack: [1]", "Use xnnpack: [0]")
    builtin = BenchmarkModel().read(output(switched_off, "--use_xnnpack=false"))
    assert (builtin.backend_nodes, builtin.graph_nodes) == (None, None)


def test_a_partial_delegate_is_refused_where_all_was_required() -> None:
    flags = ("--use_gpu=true", "--require_full_delegation=true")
    with pytest.raises(UnsupportedError, match="required"):
        BenchmarkModel().read(output(text_of("tf2_gpu_partial"), *flags))


def test_a_complete_delegate_is_what_was_required() -> None:
    flags = ("--use_xnnpack=true", "--require_full_delegation=true")
    reading = BenchmarkModel().read(output(text_of("litert"), *flags))
    assert settings_of(reading)["delegate_placement"] == "complete"


def of_tf1(*repeated: str) -> str:
    """TensorFlow 1 says nothing of a delegate; it repeats the parameters that it knows."""
    lines = "".join(f"{line} : [1]\n" for line in repeated)
    return text_of("tf1").replace("Loaded model", f"{lines}Loaded model")


def test_a_delegate_nothing_is_said_of_is_no_proof_and_the_program_is_asked_once() -> None:
    seen = output(of_tf1("Use gpu"), "--use_gpu=true")
    with pytest.raises(UnsupportedError, match="no proof"):
        BenchmarkModel().read(seen)
    stricter = BenchmarkModel().task_that_proves(task("gpu", gpu_backend="cl"), seen)
    assert stricter is not None
    assert dict(stricter.execution.options) == {
        "gpu_backend": "cl",
        "require_full_delegation": True,
    }
    flags = ("--use_gpu=true", "--require_full_delegation=true")
    again = output(of_tf1("Use gpu", "Require full delegation"), *flags)
    assert BenchmarkModel().task_that_proves(stricter, again) is None
    reading = BenchmarkModel().read(again)
    assert settings_of(reading)["delegate_placement"] == "complete"


def test_a_build_that_does_not_know_the_question_proves_nothing() -> None:
    flags = ("--use_gpu=true", "--require_full_delegation=true")
    with pytest.raises(UnsupportedError, match="require_full_delegation"):
        BenchmarkModel().read(output(of_tf1("Use gpu"), *flags))
    repeats_nothing = "".join(
        line for line in text_of("tf1").splitlines(keepends=True) if "[" not in line
    )
    with pytest.raises(UnsupportedError, match="no proof"):
        BenchmarkModel().read(output(repeats_nothing, *flags))


def test_nodes_of_another_delegate_are_no_proof_for_an_external_one() -> None:
    text = with_external(
        "INFO: EXTERNAL delegate created.\n"
        "INFO: TfLiteXNNPackDelegate delegate: 31 nodes delegated out of 31 nodes.\n"
        "INFO: TfLiteFlexDelegate delegate: 5 nodes delegated out of 31 nodes with 1 partitions."
    )
    with pytest.raises(UnsupportedError, match="no proof"):
        BenchmarkModel().read(output(text, EXTERNAL_FLAG))


@pytest.mark.parametrize(
    ("sentence", "placement"),
    [
        ("Explicitly applied NNAPI delegate, and the model graph will be partially executed by the "
         "delegate w/ 3 delegate kernels.", "partial"),
        ("Applied NNAPI delegate, and the model graph will be completely executed w/ the delegate.",
         "complete"),
        ("TfLiteNnapiDelegate delegate: 3 nodes delegated out of 65 nodes.", "partial"),
    ],
)  # fmt: skip
def test_a_number_of_kernels_or_the_word_for_all_is_a_proof(sentence: str, placement: str) -> None:
    text = text_of("litert").replace("INFO: XNNPACK delegate created.", f"INFO: {sentence}")
    text = text.replace("Use xnnpack", "Use NNAPI")
    reading = BenchmarkModel().read(output(text, "--use_nnapi=true"))
    assert settings_of(reading)["delegate_placement"] == placement
    error = "nnapi error: unable to open library libneuralnetworks.so\n"
    with pytest.raises(UnsupportedError, match="took no node"):
        BenchmarkModel().read(output(error + text, "--use_nnapi=true"))


def test_a_delegate_that_took_nothing_never_gives_a_figure() -> None:
    with pytest.raises(UnsupportedError, match="no node"):
        BenchmarkModel().read(output(text_of("tf2_nnapi_refused"), "--use_nnapi=true"))


def test_a_flag_the_build_does_not_know_is_refused_though_it_ends_well() -> None:
    with pytest.raises(UnsupportedError, match="xnnpack_force_fp16") as caught:
        BenchmarkModel().read(output(text_of("unknown_flag")))
    assert "result_file_path" not in caught.value.message


def test_an_older_build_without_the_result_file_is_read_by_its_text() -> None:
    text = "WARN: Unconsumed cmdline flags: --result_file_path=/x/r.pb\n" + text_of("litert")
    assert BenchmarkModel().read(output(text)).summary is not None


@pytest.mark.parametrize(
    ("text", "exit_code", "error"),
    [
        (text_of("full_delegation_refused"), 1, UnsupportedError),
        (text_of("bad_model"), 1, BadArtifactError),
        ("ERROR: Didn't find op for builtin opcode 'ADD' version '5'", 1, UnsupportedError),
        ("terminate called after throwing std::bad_alloc", 134, OutOfMemoryError),
        ("ERROR: Benchmarking failed.", 1, CrashedError),
        ("Segmentation fault", 139, CrashedError),
        ("Killed", 137, KilledError),
        ("CANNOT LINK EXECUTABLE: library libx.so not found", 1, UnsupportedError),
        ("sh: /t/benchmark_model: not found", 127, UnsupportedError),
        (PAGE_SIZE, 1, UnsupportedError),
        ("taskset: failed to set pid 11011's affinity: Invalid argument", 1, UnfitConditionsError),
        ("", 0, BadOutputError),
        (text_of("litert").partition("\n\n")[0], 0, BadOutputError),
        (text_of("litert").partition("8560.25\nINFO: Note")[0] + "85", 0, BadOutputError),
        (text_of("litert") * 2, 0, BadOutputError),
        (text_of("litert").replace("median=8541", "median=0"), 0, BadOutputError),
        (text_of("litert").replace("median=8541", "median=1e+99"), 0, BadOutputError),
        (text_of("litert").replace("count=117", "count="), 0, BadOutputError),
    ],
)
def test_every_bad_end_is_a_typed_error(text, exit_code, error) -> None:
    with pytest.raises(error) as caught:
        BenchmarkModel().read(output(text, exit_code=exit_code))
    assert type(caught.value) is error
    assert caught.value.remedy


def test_a_build_with_small_pages_is_named_with_the_flag_that_builds_larger_ones() -> None:
    with pytest.raises(UnsupportedError) as caught:
        BenchmarkModel().read(output(PAGE_SIZE, exit_code=1))
    assert "max-page-size=16384" in caught.value.remedy


def test_cores_that_are_offline_are_a_state_of_the_device_that_may_pass() -> None:
    text = "taskset: failed to set pid 11011's affinity: Invalid argument"
    with pytest.raises(TransientError, match="offline"):
        BenchmarkModel().read(output(text, exit_code=1))


LINES = [line for path in sorted(DATA.glob("*.txt")) for line in path.read_text().splitlines()]


@given(
    lines=st.lists(st.sampled_from(LINES) | st.text(max_size=80), max_size=40),
    exit_code=st.sampled_from([0, 0, 0, 1, 134, 137, -1, 300]),
    result=st.none() | st.binary(max_size=60),
)
def test_no_text_gets_past_the_typed_errors(lines, exit_code, result) -> None:
    seen = output("\n".join(lines), "--use_gpu=true", exit_code=exit_code, result=result)
    try:
        reading = BenchmarkModel().read(seen)
    except AgentError:
        return
    assert reading.summary is not None
    assert reading.summary.latency_ns > 0


@given(
    count=st.integers(2, 10**6),
    median=st.integers(1, 10**7),
    mean=st.floats(1, 1e7),
    is_prefixed=st.booleans(),
)
def test_figures_survive_the_way_through_the_text(count, median, mean, is_prefixed) -> None:
    shown = f"{mean:.6g}"
    text = (
        "Running benchmark for at least 1 iterations\ncount=1 curr=5\n\n"
        "Running benchmark for at least 50 iterations\n"
        f"count={count} first=1 curr=2 min=1 max=3 avg={shown} std=4 p5=1 median={median} p95=9\n\n"
        "Inference timings in us: Init: 7, First inference: 5, Warmup (avg): 5, "
        f"Inference (avg): {shown}\n"
    )
    if is_prefixed:
        text = "".join(f"INFO: {line}\n" for line in text.splitlines())
    summary = read_text(text).summary
    assert (summary.count, summary.latency_ns) == (count, median * 1000)
    assert summary.mean_ns == round(float(shown) * 1000)


def test_every_typed_error_becomes_a_failure_of_its_kind() -> None:
    ends = [
        (BadOutputError("a", "b"), ErrorKind.BAD_OUTPUT, False),
        (CrashedError("a", "b"), ErrorKind.CRASHED, False),
        (KilledError("a", "b"), ErrorKind.CRASHED, True),
        (OutOfMemoryError("a", "b"), ErrorKind.OUT_OF_MEMORY, False),
        (StorageFullError("a", "b"), ErrorKind.DISK_FULL, False),
        (UnsupportedError("a", "b"), ErrorKind.UNSUPPORTED, False),
    ]
    for error, kind, is_transient in ends:
        failure = failure_from_error(error, "timed")
        assert (failure.kind, failure.is_transient) == (kind, is_transient)


def test_the_policy_reaches_the_tool() -> None:
    policy = MeasurePolicy(min_runs=7, max_time_s=0.25, min_warmup_runs=3, min_warmup_s=0.0)
    run = BenchmarkModel().plan_run(
        program_path="/t",
        artifact_path="/m.tflite",
        run_folder="/r",
        task=MeasureTask(
            task_id="t",
            artifact_path="/m.tflite",
            artifact_sha256="0" * 64,
            execution=task().execution,
            policy=policy,
        ),
    )
    assert {"--num_runs=7", "--min_secs=0.25", "--max_secs=0.25", "--warmup_runs=3"} <= set(
        run.argv
    )


def test_a_sustained_run_ends_by_time_alone() -> None:
    long = replace(task(), policy=MeasurePolicy(min_time_s=60.0))
    run = BenchmarkModel().plan_run(
        program_path="/t", artifact_path="/m.tflite", run_folder="/r", task=long
    )
    assert {"--num_runs=1", "--min_secs=60", "--max_secs=120"} <= set(run.argv)


@pytest.mark.parametrize("program", [PerfTest(), ExecutorRunner()])
def test_programs_that_count_runs_refuse_a_time(program: PhoneProgram) -> None:
    runtime = Runtime.ONNX if program.name == PerfTest.name else Runtime.EXECUTORCH
    backend = program.capability.backends[0]
    long = replace(
        task(),
        execution=Execution(runtime=runtime, backend=backend),
        policy=MeasurePolicy(min_time_s=60.0),
    )
    with pytest.raises(UnsupportedError, match="number of inferences"):
        program.plan_run(program_path="/t", artifact_path="/m", run_folder="/r", task=long)


def test_an_external_delegate_is_a_library_beside_the_program() -> None:
    call = BenchmarkModel().plan_run(
        program_path="/t/tool",
        artifact_path="/a/m.tflite",
        run_folder="/r",
        task=task(
            "external:QnnTFLiteDelegate",
            external_delegate_options="backend_type:htp;skel_library_dir:{folder}",
        ),
    )
    assert call.library == "libQnnTFLiteDelegate.so"
    assert "--external_delegate_path=/t/libQnnTFLiteDelegate.so" in call.argv
    assert "--external_delegate_options=backend_type:htp;skel_library_dir:/t" in call.argv
    assert backend_of_library("libQnnTFLiteDelegate.so") == "external:QnnTFLiteDelegate"
    assert backend_of_library("QnnTFLiteDelegate.so") is None


EXTERNAL_FLAG = "--external_delegate_path=/t/libX.so"


def with_external(sentences: str) -> str:
    """A run of LiteRT with an external delegate in place of XNNPACK's three lines."""
    lines = text_of("litert").splitlines()
    kept = [line for line in lines if "XNNPACK" not in line and "XNNPack" not in line]
    return "\n".join([*kept[:12], sentences, *kept[12:]]) + "\n"


@pytest.mark.parametrize(
    "sentence",
    [
        # tensorflow issue 83344, with another count
        "INFO: TfLiteQnnDelegate delegate: 29 nodes delegated out of 31 nodes with 2 partitions.",
        "INFO: EthosuDelegate: 29 nodes delegated out of 31 nodes with 1 partitions.",
        "VERBOSE: Replacing 29 out of 31 node(s) with delegate (TfLiteQnnDelegate) node, yielding "
        "2 partitions for subgraph 0.\nVERBOSE: Replacing 2 out of 3 node(s) with delegate "
        "(TfLiteXNNPackDelegate) node, yielding 1 partitions for subgraph 0.\n"
        "INFO: TfLiteQnnDelegate delegate: 29 nodes delegated out of 31 nodes with 2 partitions.",
    ],
)
def test_the_nodes_of_an_external_delegate_are_counted_once(sentence: str) -> None:
    text = with_external(f"INFO: EXTERNAL delegate created.\n{sentence}")
    reading = BenchmarkModel().read(output(text, EXTERNAL_FLAG))
    assert (reading.backend_nodes, reading.graph_nodes) == (29, 31)
    assert settings_of(reading)["delegate_placement"] == "partial"
    with pytest.raises(UnsupportedError, match="required"):
        BenchmarkModel().read(output(text, EXTERNAL_FLAG, "--require_full_delegation=true"))


def test_an_external_delegate_that_took_nothing_is_refused() -> None:
    """The sentences of tensorflow issue 83344, from a Galaxy S23."""
    text = with_external(
        "INFO: EXTERNAL delegate created.\n"
        "INFO: TfLiteQnnDelegate delegate: 0 nodes delegated out of 31 nodes with 0 partitions.\n"
        "INFO: Though EXTERNAL delegate is explicitly applied, the model graph will not be "
        "executed by the delegate.\nINFO: Created TensorFlow Lite XNNPACK delegate for CPU."
    )
    with pytest.raises(UnsupportedError, match="took no"):
        BenchmarkModel().read(output(text, EXTERNAL_FLAG))
