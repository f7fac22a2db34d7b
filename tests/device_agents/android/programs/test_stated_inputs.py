"""Inputs that a card states, on phones: flags of the program, or a reason for the plan."""

import pytest
from phone_calls import execution_of, plan_of, program_of
from phone_farm.imitation.command import flags_of

from fleetrank.device_agents.android.programs.benchmark_model import BenchmarkModel
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput
from fleetrank.device_agents.errors import BadOutputError, UnsupportedError
from fleetrank.foundation.inputs import ModelInput, Values

IDS = ModelInput(name="ids", shape=(1, 8), dtype="int32", values=Values(low=0, high=30521))
MASK = ModelInput(name="mask", shape=(1, 8), dtype="int32", values=Values(low=1, high=1))
IMAGE = ModelInput(name="image", shape=(1, 4, 4, 3), dtype="float32", values=Values())


def argv(program: str, *inputs: ModelInput) -> tuple[str, ...]:
    return plan_of(program, execution_of(program, *inputs)).argv


def test_sizes_and_ranges_become_flags_in_the_order_of_the_card() -> None:
    flags = set(argv("benchmark_model", IDS, MASK, IMAGE)) - set(argv("benchmark_model"))
    assert flags == {
        "--input_layer=ids,mask,image",
        "--input_layer_shape=1,8:1,8:1,4,4,3",
        "--input_layer_value_range=ids,0,30521:mask,1,1",
    }
    assert {flag[2:].partition("=")[0] for flag in flags} <= flags_of("benchmark_model").keys()


def test_names_that_would_end_a_flag_are_replaced() -> None:
    odd = ModelInput(name="serving_default_a:0", shape=(2,), dtype="int64", values=Values())
    found = argv("benchmark_model", odd, IDS)
    assert "--input_layer=input_0,ids" in found
    assert "--input_layer_value_range=input_0,0,1:ids,0,30521" in found


@pytest.mark.parametrize(
    ("program", "dtype", "values", "why"),
    [
        ("benchmark_model", "float32", Values(path="/x.npy"), "file"),
        ("benchmark_model", "float32", Values(low=0.5, high=1), "0.5"),
        ("benchmark_model", "int64", Values(low=0, high=2**31), "32 bits"),
        ("benchmark_model", "bool", Values(low=1, high=1), "boolean"),
        ("executor_runner", "float32", Values(), "sizes"),
    ],
)
def test_what_a_program_cannot_be_given_is_refused_with_the_reason(
    program: str, dtype: str, values: Values, why: str
) -> None:
    one = ModelInput(name="x", shape=(1, 8), dtype=dtype, values=values)
    assert why in (program_of(program).why_unsupported(execution_of(program, one)) or "")
    with pytest.raises(UnsupportedError):
        argv(program, one)


@pytest.mark.parametrize(
    ("program", "one"),
    [
        ("benchmark_model", ModelInput(name="m", shape=(1,), dtype="bool", values=Values())),
        ("benchmark_model", ModelInput(name="b", shape=(1,), dtype="uint8", values=Values())),
    ],
)
def test_what_a_program_can_make_is_measured(program: str, one: ModelInput) -> None:
    assert program_of(program).why_unsupported(execution_of(program, one)) is None


def test_values_that_went_to_another_input_of_the_file_are_refused() -> None:
    """Source of the line: benchmark_tflite_model.cc, `BenchmarkTfLiteModel::Init`."""
    call = ProgramCall(argv=argv("benchmark_model", IDS, MASK))
    warning = "WARN: Tensor # 0 is named serving_default_mask:0 but flags call it ids\n"
    with pytest.raises(UnsupportedError, match="'mask'"):
        BenchmarkModel().read(ProgramOutput(run=call, exit_code=0, stdout=warning, stderr=""))


def test_another_name_at_the_same_place_is_no_error() -> None:
    call = ProgramCall(argv=argv("benchmark_model", IDS, MASK))
    text = (
        "WARN: Tensor # 0 is named serving_default_ids:0 but flags call it ids\n"
        "WARN: Tensor # 1 is named args_1 but flags call it mask\n"
    )
    # The order is accepted; what is missing is the rest of the output.
    with pytest.raises(BadOutputError):
        BenchmarkModel().read(ProgramOutput(run=call, exit_code=0, stdout=text, stderr=""))
