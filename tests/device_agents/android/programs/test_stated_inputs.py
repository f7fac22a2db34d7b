"""Inputs that a card states, on phones: flags of the program, or a reason for the plan."""

import pytest

from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.executor_runner import ExecutorRunner
from fleetrank.device_agents.android.programs.perf_test import PerfTest
from fleetrank.device_agents.android.programs.phone_program import (
    PhoneProgram,
    ProgramCall,
    ProgramOutput,
)
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import BadOutputError, UnsupportedError
from fleetrank.device_agents.virtual_phone.imitation.command import flags_of
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.vocabulary import Runtime

IDS = ModelInput(name="ids", shape=(1, 8), dtype="int32", values=Values(low=0, high=30521))
MASK = ModelInput(name="mask", shape=(1, 8), dtype="int32", values=Values(low=1, high=1))
IMAGE = ModelInput(name="image", shape=(1, 4, 4, 3), dtype="float32", values=Values())
RUNTIMES = {
    BenchmarkModel: (Runtime.TFLITE, "xnnpack"),
    PerfTest: (Runtime.ONNX, "cpu"),
    ExecutorRunner: (Runtime.EXECUTORCH, "xnnpack"),
}


def execution(program: type[PhoneProgram], *inputs: ModelInput) -> Execution:
    runtime, backend = RUNTIMES[program]
    return Execution(runtime=runtime, backend=backend, threads=1, inputs=inputs)


def argv(program: type[PhoneProgram], *inputs: ModelInput) -> tuple[str, ...]:
    task = MeasureTask(
        task_id="t", artifact_path="m", artifact_sha256="0", execution=execution(program, *inputs)
    )
    return program().plan_run(
        program_path="/p", artifact_path="/m", run_folder="/r", task=task
    ).argv  # fmt: skip


def test_sizes_and_ranges_become_flags_in_the_order_of_the_card() -> None:
    flags = set(argv(BenchmarkModel, IDS, MASK, IMAGE)) - set(argv(BenchmarkModel))
    assert flags == {
        "--input_layer=ids,mask,image",
        "--input_layer_shape=1,8:1,8:1,4,4,3",
        "--input_layer_value_range=ids,0,30521:mask,1,1",
    }
    assert {flag[2:].partition("=")[0] for flag in flags} <= flags_of("benchmark_model").keys()


def test_names_that_would_end_a_flag_are_replaced() -> None:
    odd = ModelInput(name="serving_default_a:0", shape=(2,), dtype="int64", values=Values())
    found = argv(BenchmarkModel, odd, IDS)
    assert "--input_layer=input_0,ids" in found
    assert "--input_layer_value_range=input_0,0,1:ids,0,30521" in found


@pytest.mark.parametrize(
    ("program", "dtype", "values", "why"),
    [
        (BenchmarkModel, "float32", Values(path="/x.npy"), "file"),
        (BenchmarkModel, "float32", Values(low=0.5, high=1), "0.5"),
        (BenchmarkModel, "int64", Values(low=0, high=2**31), "32 bits"),
        (BenchmarkModel, "bool", Values(low=1, high=1), "boolean"),
        (PerfTest, "int64", Values(low=1, high=1), "'x'"),
        (PerfTest, "float32", Values(path="/x.npy"), "'x'"),
        (ExecutorRunner, "float32", Values(), "sizes"),
    ],
)
def test_what_a_program_cannot_be_given_is_refused_with_the_reason(
    program: type[PhoneProgram], dtype: str, values: Values, why: str
) -> None:
    one = ModelInput(name="x", shape=(1, 8), dtype=dtype, values=values)
    assert why in (program().why_unsupported(execution(program, one)) or "")
    with pytest.raises(UnsupportedError):
        argv(program, one)


@pytest.mark.parametrize(
    ("program", "one"),
    [
        (BenchmarkModel, ModelInput(name="m", shape=(1,), dtype="bool", values=Values())),
        (BenchmarkModel, ModelInput(name="b", shape=(1,), dtype="uint8", values=Values())),
        (PerfTest, IDS),
        (PerfTest, IMAGE),
    ],
)
def test_what_a_program_can_make_is_measured(program: type[PhoneProgram], one: ModelInput) -> None:
    assert program().why_unsupported(execution(program, one)) is None


def test_values_that_went_to_another_input_of_the_file_are_refused() -> None:
    """Source of the line: benchmark_tflite_model.cc, `BenchmarkTfLiteModel::Init`."""
    call = ProgramCall(argv=argv(BenchmarkModel, IDS, MASK))
    warning = "WARN: Tensor # 0 is named serving_default_mask:0 but flags call it ids\n"
    with pytest.raises(UnsupportedError, match="'mask'"):
        BenchmarkModel().read(ProgramOutput(run=call, exit_code=0, stdout=warning, stderr=""))


def test_another_name_at_the_same_place_is_no_error() -> None:
    call = ProgramCall(argv=argv(BenchmarkModel, IDS, MASK))
    text = (
        "WARN: Tensor # 0 is named serving_default_ids:0 but flags call it ids\n"
        "WARN: Tensor # 1 is named args_1 but flags call it mask\n"
    )
    # The order is accepted; what is missing is the rest of the output.
    with pytest.raises(BadOutputError):
        BenchmarkModel().read(ProgramOutput(run=call, exit_code=0, stdout=text, stderr=""))
