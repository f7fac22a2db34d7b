"""States of a decoder stay in the memory of each runtime, and steps follow a prompt."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_decoder
from daily import daily
from tiny_decoder import VOCABULARY, execution_of, teacher_forced

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.runtime import Array, SequenceModel
from fleetrank.device_agents.contract.task import MeasurePolicy, MeasureTask
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.runner import create_runner, default_backend
from fleetrank.device_agents.runtimes.states import check_state, state_pairs
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Flag, Runtime, Status
from tests.device_agents.conftest import measure_here

PROMPT, STEPS = 16, 7
GENERATE, DECODE = "generate@16+8", "decode@24"
POLICY = MeasurePolicy(
    min_warmup_s=0.0, min_runs=20, half_width=0.0, max_samples=6 * STEPS, max_time_s=60.0,
    max_warmup_s=0.5, energy_s=0.0,
)  # fmt: skip
TOKENS = np.random.default_rng(3).integers(0, VOCABULARY, (1, PROMPT + STEPS))
RUNTIMES = list(Runtime)


@pytest.fixture(scope="module")
def file_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Runtime, str], Path]:
    folder = tmp_path_factory.mktemp("decoders")
    made: dict[tuple[Runtime, str], Path] = {}

    def find(runtime: Runtime, text: str) -> Path:
        if (runtime, text) not in made:
            made[runtime, text] = tiny_decoder.save(folder, runtime, text)
        return made[runtime, text]

    return find


def load(runtime: Runtime, path: Path, text: str = GENERATE):
    execution = execution_of(runtime, default_backend(runtime), text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing ExecuTorch warns of experimental parts
        return create_runner(runtime).load(str(path), execution)


def prepared(model: SequenceModel) -> SequenceModel:
    """Holds the prompt and the steps of `TOKENS`, and seeded values in the cache."""

    def arrays(begin: int, end: int) -> list[Array]:
        tokens, positions = TOKENS[:, begin:end], np.arange(begin, end)
        return [
            np.ascontiguousarray(tokens, dtype=model.inputs[0].dtype),
            positions.astype(model.inputs[1].dtype),
        ]

    model.set_inputs([*arrays(0, PROMPT), *make_inputs(model.inputs[2:], seed=5)])
    model.set_steps([arrays(place, place + 1) for place in range(PROMPT, PROMPT + STEPS)])
    return model


@pytest.mark.parametrize("runtime", daily(RUNTIMES, Runtime.ONNX))
@pytest.mark.export
def test_a_prompt_and_steps_compute_what_one_pass_over_all_tokens_does(
    runtime: Runtime, file_of: Callable[[Runtime, str], Path]
) -> None:
    model = load(runtime, file_of(runtime, GENERATE))
    assert isinstance(model, SequenceModel)
    prepared(model)
    expected = teacher_forced(TOKENS, PROMPT + STEPS + 1)[PROMPT - 1 :]
    for _ in range(2):  # the second prompt begins with the cache that the first sequence left
        model.run()
        found = [model.outputs()[0]]
        for _ in range(STEPS):
            model.step()
            found.append(model.outputs()[0])
        np.testing.assert_allclose(np.stack(found), np.stack(expected), atol=1e-4)
    model.step()  # the first step again
    np.testing.assert_allclose(model.outputs()[0], expected[1], atol=1e-4)


@pytest.mark.export
def test_onnx_writes_a_state_where_it_reads_it(file_of) -> None:
    model = prepared(load(Runtime.ONNX, file_of(Runtime.ONNX, GENERATE)))
    places = {name: value.data_ptr() for name, value in model.values.items()}
    before = model.values["keys_0"].numpy().copy()
    model.run()
    model.step()
    after = model.values["keys_0"].numpy()
    assert {name: value.data_ptr() for name, value in model.values.items()} == places
    assert not model.copies_state
    np.testing.assert_array_equal(after, model.outputs()[1])
    # Positions 0 to 16 are written, the last slots are not.
    assert (before[:, :, : PROMPT + 1] != after[:, :, : PROMPT + 1]).all()
    np.testing.assert_array_equal(before[:, :, PROMPT + 1 :], after[:, :, PROMPT + 1 :])


@pytest.mark.thorough
@pytest.mark.export
def test_pytorch_takes_the_returned_tensors_as_the_next_arguments(file_of) -> None:
    import torch

    model = prepared(load(Runtime.TORCH, file_of(Runtime.TORCH, GENERATE)))
    model.run()
    returned = [tensor.data_ptr() for tensor in model.states]
    seen: list[int] = []
    bare = model._module

    def watched(*arguments: torch.Tensor) -> object:
        seen.extend(tensor.data_ptr() for tensor in arguments[2:])
        return bare(*arguments)

    model._module = watched
    model.step()
    assert seen == returned
    assert not model.copies_state


@pytest.mark.thorough
@pytest.mark.export
def test_litert_has_one_buffer_for_both_ends_of_a_state(file_of) -> None:
    model = prepared(load(Runtime.TFLITE, file_of(Runtime.TFLITE, GENERATE)))
    model.run()
    model.step()
    size = int(np.prod(model.inputs[2].shape))
    # The buffer that is read as an input holds what the outputs say.
    held = model.buffers[2].read(size, np.float32).reshape(model.inputs[2].shape)
    np.testing.assert_array_equal(held, model.outputs()[1])
    assert not model.copies_state


def measured(runtime: Runtime, path: Path, text: str) -> Measurement:
    task = MeasureTask(
        task_id="t",
        artifact_path=str(path),
        artifact_sha256=file_sha256(path),
        execution=execution_of(runtime, default_backend(runtime), text),
        is_trusted=True,
        policy=POLICY,
    )
    return measure_here(task)


@pytest.mark.thorough
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.export
def test_steps_are_timed_by_themselves_and_in_sequences(
    runtime: Runtime, file_of: Callable[[Runtime, str], Path]
) -> None:
    whole = measured(runtime, file_of(runtime, GENERATE), GENERATE)
    assert whole.status is Status.OK, whole.failure
    assert whole.sample_kind == "per_token"
    assert whole.ttft_samples_ns is not None
    assert (len(whole.ttft_samples_ns), len(whole.samples_ns)) == (6, 6 * STEPS)
    alone = measured(runtime, file_of(runtime, DECODE), DECODE)
    assert alone.status is Status.OK, alone.failure
    assert (alone.sample_kind, alone.ttft_samples_ns) == ("per_inference", None)
    copies = runtime is Runtime.EXECUTORCH
    assert [(Flag.CACHE_COPIED in seen.flags) for seen in (whole, alone)] == [copies] * 2


@pytest.mark.export
def test_an_output_that_the_card_names_must_exist(file_of) -> None:
    execution = execution_of(Runtime.ONNX, "cpu", DECODE)
    wrong = tuple(
        replace(one, state="present_0") if one.name == "keys_0" else one for one in execution.inputs
    )
    with pytest.raises(UnsupportedError, match=r"present_0.*next_keys_0") as raised:
        create_runner(Runtime.ONNX).load(
            str(file_of(Runtime.ONNX, DECODE)), replace(execution, inputs=wrong)
        )
    assert "state" in raised.value.remedy


def test_states_without_names_are_the_last_outputs() -> None:
    specs = [ModelInput(name="ids", shape=(1,), dtype="int32")]
    specs += [ModelInput(name=f"s{n}", shape=(2,), dtype="float32", state=f"n{n}") for n in (0, 1)]
    pairs = state_pairs(specs, ["a", "b", "c", "d"], has_names=False)
    assert [(pair.input, pair.output) for pair in pairs] == [(1, 2), (2, 3)]
    by_name = state_pairs(specs, ["n1", "logits", "n0"], has_names=False)
    assert [(pair.input, pair.output) for pair in by_name] == [(1, 2), (2, 0)]
    with pytest.raises(UnsupportedError, match="n0, n1"):
        state_pairs(specs, ["a"], has_names=False)


def test_a_cache_that_grows_is_refused() -> None:
    spec = ModelInput(name="past", shape=(1, 4), dtype="float32", state="present")
    check_state(spec, (1, 4), "float32")
    with pytest.raises(UnsupportedError, match="fixed size") as raised:
        check_state(spec, (1, 5), "float32")
    assert "'present'" in raised.value.message


@pytest.mark.export
def test_a_sequence_in_a_round_is_refused_with_what_to_measure_instead(file_of) -> None:
    from fleetrank.device_agents.contract.task import BlockPolicy
    from fleetrank.device_agents.worker.generation import sequence_runs

    path = file_of(Runtime.ONNX, GENERATE)
    task = MeasureTask(
        task_id="t",
        artifact_path=str(path),
        artifact_sha256="",
        execution=execution_of(Runtime.ONNX, "cpu", GENERATE),
        blocks=BlockPolicy(),
    )
    with pytest.raises(UnsupportedError, match="turns") as raised:
        sequence_runs(load(Runtime.ONNX, path), task)
    assert "decode@24" in raised.value.remedy


def test_a_worker_without_states_imports_nothing_of_them() -> None:
    code = """
import sys
import fleetrank.device_agents.worker.__main__, fleetrank.device_agents.worker.measure
import fleetrank.device_agents.worker.infer
from fleetrank.device_agents.runtimes.runner import RUNNERS
for name in RUNNERS.keys():
    RUNNERS.load(name)
print([m for m in sys.modules if m.endswith(('states', 'sequences', 'generation'))])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
