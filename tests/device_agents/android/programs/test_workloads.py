"""Language workloads on phones: what each program's flags can state, and what no program can."""

import pytest
from phone_calls import RUNTIMES, execution_of, plan_of, program_of

from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_language_zoo


def execution(program: str, text: str) -> Execution:
    workload = Workload.parse(text)
    inputs = resolve(load_language_zoo()["stories260k"]).sized_inputs(workload.axes, 1, workload)
    return execution_of(program, *inputs, workload=workload)


@pytest.mark.parametrize("program", RUNTIMES)
@pytest.mark.parametrize("text", ["prefill@64", "decode@512", "segment@64+k8+n16"])
def test_prompts_and_steps_can_be_measured(program: str, text: str) -> None:
    assert program_of(program).why_unsupported(execution(program, text)) is None


@pytest.mark.parametrize("program", RUNTIMES)
def test_a_loop_is_refused_with_its_parts(program: str) -> None:
    reason = program_of(program).why_unsupported(execution(program, "generate@64+32"))
    assert reason is not None
    assert "prefill@64" in reason
    assert "decode@96" in reason


@pytest.mark.parametrize(
    ("text", "ranges"),
    [("decode@512", ("positions,511,511", "positions,keys_0,values_0,keys_1")),
     ("prefill@64", ("positions,0,63", "positions,keys_0,values_0,keys_1")),
     ("segment@64+k8+n16", ("sensory,0,511", "sensory,memories"))],
)  # fmt: skip
def test_whole_numbers_have_the_ranges_of_the_workload(text: str, ranges: tuple[str, str]) -> None:
    call = plan_of("benchmark_model", execution("benchmark_model", text))
    (found,) = (flag for flag in call.argv if flag.startswith("--input_layer_value_range="))
    assert found == f"--input_layer_value_range=tokens,0,511:{ranges[0]}"
    (names,) = (flag for flag in call.argv if flag.startswith("--input_layer="))
    assert names.startswith(f"--input_layer=tokens,{ranges[1]}")
