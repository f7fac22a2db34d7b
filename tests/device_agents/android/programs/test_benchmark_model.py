from dataclasses import replace
from pathlib import Path

import pytest
from device_parsers import encode_result
from phone_calls import execution_of, plan_of, task_of

from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.benchmark_result import read_result
from fleetrank.device_agents.android.programs.delegate_flags import backend_of_library
from fleetrank.device_agents.android.programs.litert_text import read_text
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput
from fleetrank.device_agents.contract.measurement import Measurement, ToolSummary
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, OptionValue
from fleetrank.device_agents.errors import (
    BadArtifactError,
    BadOutputError,
    CrashedError,
    KilledError,
    OutOfMemoryError,
    UnfitConditionsError,
    UnsupportedError,
)
from fleetrank.foundation.vocabulary import MemoryMetric, SampleKind, Statistic

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


OFFLINE = "taskset: failed to set pid 11011's affinity: Invalid argument"
NAME = "benchmark_model"


def settings_of(reading: Measurement) -> dict[str, OptionValue]:
    return dict(reading.worker.settings)


def text_of(name: str) -> str:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def output(
    text: str, *flags: str, exit_code: int = 0, result: bytes | None = None
) -> ProgramOutput:
    run = ProgramCall(argv=("/t/benchmark_model", "--graph=/m.tflite", *flags))
    return ProgramOutput(run=run, exit_code=exit_code, stdout=text, stderr="", result=result)


def execution(backend: str = "xnnpack", **options: OptionValue) -> Execution:
    return execution_of(NAME, backend=backend, threads=4, options=tuple(sorted(options.items())))


def test_the_command_line_is_the_task() -> None:
    run = plan_of(NAME, execution())
    assert run.result_file == "/r/result.pb"
    assert run.argv == (
        "/t/tool", "--graph=/a/m", "--num_threads=4", "--warmup_runs=10",
        "--warmup_min_secs=0.5", "--num_runs=100", "--min_secs=1", "--max_secs=20",
        "--use_xnnpack=true", "--result_file_path=/r/result.pb",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "options", "flags"),
    [
        ("builtin", {}, {"--use_xnnpack=false"}),
        # Half precision is asked for, and never slipped in.
        ("gpu", {}, {"--use_gpu=true", "--gpu_precision_loss_allowed=false"}),
        ("gpu", {"gpu_precision_loss_allowed": True}, {"--gpu_precision_loss_allowed=true"}),
        (
            "nnapi",
            {"require_full_delegation": True, "nnapi_accelerator_name": "a b; $(c)"},
            {"--require_full_delegation=true", "--nnapi_accelerator_name=a b; $(c)"},
        ),
        (
            "external:Qnn",
            {"external_delegate_options": "backend_type:htp;skel_library_dir:{folder}"},
            {
                "--external_delegate_path=/t/libQnn.so",
                "--external_delegate_options=backend_type:htp;skel_library_dir:/t",
            },
        ),
    ],
)
def test_backend_and_options_become_flags(backend, options, flags) -> None:
    argv = plan_of(NAME, execution(backend, **options)).argv
    assert flags <= set(argv)
    assert sum("loss_allowed" in flag for flag in argv) == (backend == "gpu")


@pytest.mark.parametrize(
    ("policy", "flags"),
    [
        (
            MeasurePolicy(min_runs=7, max_time_s=0.25, min_warmup_runs=3, min_warmup_s=0.0),
            {"--num_runs=7", "--min_secs=0.25", "--max_secs=0.25", "--warmup_runs=3"},
        ),
        # A sustained run ends by time alone.
        (MeasurePolicy(min_time_s=60.0), {"--num_runs=1", "--min_secs=60", "--max_secs=120"}),
    ],
)
def test_the_policy_reaches_the_tool(policy, flags) -> None:
    assert flags <= set(plan_of(NAME, execution(), policy).argv)


def test_a_program_that_counts_runs_refuses_a_time() -> None:
    name = "executor_runner"
    with pytest.raises(UnsupportedError, match="number of inferences"):
        plan_of(name, execution_of(name), MeasurePolicy(min_time_s=60.0))


def test_an_external_delegate_is_a_library_beside_the_program() -> None:
    assert plan_of(NAME, execution("external:QnnDelegate")).library == "libQnnDelegate.so"
    assert backend_of_library("libQnnTFLiteDelegate.so") == "external:QnnTFLiteDelegate"
    assert backend_of_library("QnnTFLiteDelegate.so") is None


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
    given = execution(backend, **options)
    assert why in (BenchmarkModel().why_unsupported(given) or "")
    with pytest.raises(UnsupportedError, match=why):
        plan_of(NAME, given)


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


FASTER = {**LITERT_PARTS, "latency_metrics": {**LITERT_PARTS["latency_metrics"], "median_ms": 8.6}}


@pytest.mark.parametrize(
    ("content", "source", "latency_ns"),
    [(encode_result(FASTER), "result_file", 8_600_000)]
    + [(bad, "text", 8_541_000) for bad in (b"", b"\x12", b"garbage" * 9, encode_result({}))],
    ids=["whole", "empty", "cut", "garbage", "without parts"],
)
def test_the_result_file_is_preferred_unless_it_is_damaged(content, source, latency_ns) -> None:
    reading = BenchmarkModel().read(output(text_of("litert"), result=content))
    assert (settings_of(reading)["read_from"], reading.summary.latency_ns) == (source, latency_ns)


def test_a_result_file_and_a_text_that_count_other_runs_are_refused() -> None:
    text = text_of("litert").replace("count=117", "count=118")
    with pytest.raises(BadOutputError, match="disagree; what was read is '117, 118"):
        BenchmarkModel().read(output(text, result=encode_result(LITERT_PARTS)))


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
    assert (reading.summary.count, reading.summary.mean_ns) == (50, mean_ns)
    assert (reading.first_inference_ns, reading.load_ns) == (first_ns, load_ns)
    moved = replace(output(""), stderr=text_of(name))
    assert BenchmarkModel().read(moved).summary == reading.summary, "all of it on standard error"


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


def test_a_partial_delegate_is_told_with_its_share_of_nodes() -> None:
    reading = BenchmarkModel().read(output(text_of("tf2_gpu_partial"), "--use_gpu=true"))
    settings = settings_of(reading)
    assert settings["delegate_placement"] == "partial"
    assert settings["delegate_node_share"] == pytest.approx(54 / 65)
    assert (reading.backend_nodes, reading.graph_nodes) == (54, 65)
    switched_off = text_of("litert").replace("Use xnnpack: [1]", "Use xnnpack: [0]")
    builtin = BenchmarkModel().read(output(switched_off, "--use_xnnpack=false"))
    assert (builtin.backend_nodes, builtin.graph_nodes) == (None, None)
    # All of it was required, and one took all, one a part, one nothing.
    required = "--require_full_delegation=true"
    whole = BenchmarkModel().read(output(text_of("litert"), "--use_xnnpack=true", required))
    assert settings_of(whole)["delegate_placement"] == "complete"
    for name, flags, said in (
        ("tf2_gpu_partial", ("--use_gpu=true", required), "required"),
        ("tf2_nnapi_refused", ("--use_nnapi=true",), "no node"),
    ):
        with pytest.raises(UnsupportedError, match=said):
            BenchmarkModel().read(output(text_of(name), *flags))


def of_tf1(*repeated: str) -> str:
    """TensorFlow 1 says nothing of a delegate; it repeats the parameters that it knows."""
    lines = "".join(f"{line} : [1]\n" for line in repeated)
    return text_of("tf1").replace("Loaded model", f"{lines}Loaded model")


def test_a_delegate_nothing_is_said_of_is_no_proof_and_the_program_is_asked_once() -> None:
    seen = output(of_tf1("Use gpu"), "--use_gpu=true")
    with pytest.raises(UnsupportedError, match="no proof"):
        BenchmarkModel().read(seen)
    stricter = BenchmarkModel().task_that_proves(task_of(execution("gpu", gpu_backend="cl")), seen)
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


def test_a_flag_the_build_does_not_know_is_refused_though_it_ends_well() -> None:
    with pytest.raises(UnsupportedError, match="xnnpack_force_fp16") as caught:
        BenchmarkModel().read(output(text_of("unknown_flag")))
    assert "result_file_path" not in caught.value.message
    # An older build without the result file is read by its text.
    text = "WARN: Unconsumed cmdline flags: --result_file_path=/x/r.pb\n" + text_of("litert")
    assert BenchmarkModel().read(output(text)).summary is not None


@pytest.mark.parametrize(
    ("text", "exit_code", "error", "said"),
    [
        (text_of("full_delegation_refused"), 1, UnsupportedError, ""),
        (text_of("bad_model"), 1, BadArtifactError, ""),
        ("ERROR: Failed to load model /m.tflite", 1, BadArtifactError, ""),
        ("ERROR: Didn't find op for builtin opcode 'ADD' version '5'", 1, UnsupportedError, ""),
        ("terminate called after throwing std::bad_alloc", 134, OutOfMemoryError, "SIGABRT"),
        ("Failed to apply GPU delegate", 134, UnsupportedError, "SIGABRT"),
        ("ERROR: Benchmarking failed.", 1, CrashedError, ""),
        ("Segmentation fault", 139, CrashedError, ""),
        ("Killed", 137, KilledError, ""),
        ("CANNOT LINK EXECUTABLE: library libx.so not found", 1, UnsupportedError, ""),
        ("sh: /t/benchmark_model: not found", 127, UnsupportedError, ""),
        (PAGE_SIZE, 1, UnsupportedError, "max-page-size=16384"),
        # Cores that are offline: a state of the device that may pass.
        (OFFLINE, 1, UnfitConditionsError, "offline"),
        ("", 0, BadOutputError, ""),
        (text_of("count_zero"), 0, BadOutputError, ""),
        (text_of("litert").partition("\n\n")[0], 0, BadOutputError, ""),
        (text_of("litert").partition("8560.25\nINFO: Note")[0] + "85", 0, BadOutputError, ""),
        (text_of("litert") * 2, 0, BadOutputError, ""),
        (text_of("litert").replace("median=8541", "median=0"), 0, BadOutputError, ""),
        (text_of("litert").replace("median=8541", "median=1e+99"), 0, BadOutputError, ""),
        (text_of("litert").replace("count=117", "count="), 0, BadOutputError, ""),
    ],
)
def test_every_bad_end_is_a_typed_error(text, exit_code, error, said) -> None:
    with pytest.raises(error) as caught:
        BenchmarkModel().read(output(text, exit_code=exit_code))
    assert type(caught.value) is error
    assert said in f"{caught.value.message} {caught.value.remedy}"
    assert caught.value.remedy


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
