"""Times of operators in the words of several versions, and what makes them a refusal."""

from collections import Counter

import pytest
from phone_calls import execution_of, plan_of

from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.operator_times import module_of, read_operators
from fleetrank.device_agents.contract.kernel_profile import MOST_RUNS, Kernel
from fleetrank.device_agents.errors import BadOutputError, UnsupportedError
from tests.device_agents.android.programs.test_benchmark_model import output, text_of

PROFILED = "--enable_op_profiling=true"


def shares_of(kernels: tuple[Kernel, ...]) -> dict[str, float]:
    times = Counter[str]()
    for kernel in kernels:
        times[kernel.operator] += kernel.kernel_ns
    return {name: ns / times.total() for name, ns in times.items()}


def test_shares_are_those_that_the_program_itself_prints() -> None:
    shares = shares_of(read_operators(text_of("tf2_nnapi_profiled")))
    assert shares == {
        "RESIZE_BILINEAR": pytest.approx(0.01404 + 0.00182 + 0.42965, abs=2e-5),
        "ARG_MAX": pytest.approx(0.29438, abs=2e-5),
        "TfLiteNnapiDelegate": pytest.approx(0.21939 + 0.01256 + 0.02663, abs=2e-5),
        "AVERAGE_POOL_2D": pytest.approx(0.00153, abs=2e-5),
    }


def test_a_node_that_is_called_more_than_once_counts_each_call() -> None:
    kernels = read_operators(text_of("litert_profiled"))
    by_node = {kernel.node: kernel for kernel in kernels}
    depthwise = by_node["Delegate/Convolution (NHWC, QC8) DWConv:1"]
    assert (depthwise.operator, depthwise.calls) == ("Convolution (NHWC, QC8) DWConv", 13)
    # The program's own share of 15,309.2 us; a mean has whole microseconds.
    assert depthwise.kernel_ns == pytest.approx(0.04317 * 15_309_200, abs=13 * 500)
    assert by_node["[tfl.quantize]:0"].kernel_ns == 203_000
    assert len(kernels) == 8


def test_the_operators_of_a_delegate_take_the_place_of_its_time() -> None:
    shares = {kernel.node: kernel for kernel in read_operators(text_of("tf2_hexagon_profiled"))}
    assert [kernel.operator for kernel in shares.values()] == [
        "DEQUANTIZE", "Supernode_8x8p32to8_d32", "DepthwiseSupernode_8x8p32to8_d32",
        "Supernode_8x8p32to8_d32", "TfLiteHexagonDelegate",
    ]  # fmt: skip
    assert sum(kernel.kernel_ns for kernel in shares.values()) == 52_104_000
    assert shares["[Predictions/Softmax]:31"].kernel_ns == 2_000_000


@pytest.mark.parametrize("name", ["litert_profiled", "tf2_nnapi_profiled", "tf2_hexagon_profiled"])
def test_a_list_with_a_row_less_is_no_profile(name: str) -> None:
    lines = text_of(name).splitlines(keepends=True)
    starts = [place for place, line in enumerate(lines) if "Regular Benchmark Runs:" in line]
    del lines[starts[-1] + 4]
    with pytest.raises(BadOutputError, match="operators, of"):
        read_operators("".join(lines))


def test_a_line_too_long_to_keep_its_name_keeps_its_time() -> None:
    text = text_of("tf2_nnapi_profiled")
    long = text.replace("[ArgMax]:70", f"[{'ArgMax;' * 2000}]:70")
    assert shares_of(read_operators(long)) == shares_of(read_operators(text))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("15.326", "many", "a row of the profile|time of an operator"),
        ("15.326", "-1", "time of an operator"),
        ("15.326", "1e300", "time of an operator"),
        ("\t 29.438%", "", "a row of the profile|operators, of|time of an operator"),
        ("        1\t[ArgMax]", "99999999999999\t[ArgMax]", "time of an operator"),
        ("STARTING!", "INFO: Warning: Dropping ProfileBuffer event.", "buffer was too small"),
        ("Regular Benchmark Runs:", "Runs:", "times of operators are missing"),
        ("Number of nodes executed: 8", "", "operators, of"),
        ("Run Order", "Run", "operators, of"),
    ],
)
def test_an_odd_profile_is_refused(before: str, after: str, message: str) -> None:
    text = text_of("tf2_nnapi_profiled")
    assert before in text
    with pytest.raises(BadOutputError, match=message):
        read_operators(text.replace(before, after))


def test_a_profiled_call_gives_a_profile_and_no_latency() -> None:
    reading = BenchmarkModel().read(output(text_of("litert_profiled"), PROFILED))
    assert (reading.samples_ns, reading.summary) == ((), None)
    assert (reading.profile.runs, reading.profile.run_ns) == (64, 15_517_600)
    plain = BenchmarkModel().read(output(text_of("litert_profiled")))
    assert plain.profile is None
    assert plain.summary is not None


def test_a_profiled_command_line_asks_for_few_runs_and_room() -> None:
    call = plan_of("benchmark_model", execution_of("benchmark_model", is_profiled=True))
    assert {PROFILED, f"--num_runs={MOST_RUNS}", "--min_secs=0"} <= set(call.argv)
    assert any(flag.startswith("--max_profiling_buffer_entries=") for flag in call.argv)


def test_a_build_without_the_profile_is_refused() -> None:
    text = text_of("litert").replace(
        "INFO: STARTING!", f"INFO: STARTING!\nWARN: Unconsumed cmdline flags: {PROFILED}"
    )
    with pytest.raises(UnsupportedError, match="enable_op_profiling"):
        BenchmarkModel().read(output(text, PROFILED, "--use_xnnpack=true"))


NN = "torch.nn.modules"
NET = f"{NN}.container.Sequential"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        (f"[{NET}/{NN}.activation.ReLU_1;;{NET}/{NN}.conv.Conv2d_0;1]:3", "0"),
        (f"[{NET}/torchvision.ops.misc.Conv2dNormActivation_0/{NN}.conv.Conv2d_0;]:0", "0.0"),
        (f"[{NET};22]:7", ""),
        ("[a.Inception3/a.InceptionA_Mixed_5b/a.BasicConv2d_branch1x1;]:0", "Mixed_5b.branch1x1"),
        (f"[a.DenseNet/{NET}_features/a._DenseLayer_denselayer1;]:0", "features.denselayer1"),
        (f"[{NET}/{NN}.linear.Linear_4;1, {NET}/{NN}.linear.Linear_5;]:9", "4"),
        ("[MobilenetV1/MobilenetV1/Conv2d_0/Relu6]:0", None),
        ("[StatefulPartitionedCall:0]:3", None),
        ("[arith.constant1]:3", None),
        ("Delegate/Convolution (NHWC, F32) GEMM:6", None),
        ("", None),
    ],
)
def test_the_name_of_a_node_names_its_module(name: str, module: str | None) -> None:
    assert module_of(name) == module
