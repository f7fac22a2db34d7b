from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from phone_calls import execution_of, plan_of

from fleetrank.device_agents.android.programs.ort_runner import (
    OrtRunner,
    decode_tensors,
    encode_tensor,
    found_inputs,
)
from fleetrank.device_agents.android.programs.program_output import ProgramCall, ProgramOutput
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.errors import (
    BadArtifactError,
    BadOutputError,
    CrashedError,
    UnsupportedError,
)
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput
from fleetrank.foundation.vocabulary import MemoryMetric, SampleKind

DATA = Path(__file__).parents[3] / "data/ort_runner"
NETWORK = Path(__file__).parents[4] / "models/networks/primer.onnx"
RECORDED = {path.stem: path.read_text() for path in sorted(DATA.glob("*.txt"))}
NAME = OrtRunner.name


def output(text: str, *, exit_code: int = 0, **words: str) -> ProgramOutput:
    given = {"provider": "cpu", "threads": "1", "least_s": "0.0", **words}
    run = ProgramCall(argv=("/t/ort_runner", *(f"{name}={word}" for name, word in given.items())))
    return ProgramOutput(run=run, exit_code=exit_code, stdout=text, stderr="")


def test_the_command_line_is_the_task() -> None:
    policy = MeasurePolicy(min_warmup_runs=3, min_runs=20, min_time_s=1.5)
    chosen = execution_of(NAME, options=(("spinning", False),), backend="xnnpack")
    run = plan_of(NAME, chosen, policy, check_path="/c/check.npz")
    assert run.argv == (
        "/t/tool", "model=/a/m", "inputs=/r/inputs", "outputs=/r/outputs", "provider=xnnpack",
        "threads=2", "session.set_denormal_as_zero=0", "session.intra_op.allow_spinning=0",
        "session.x64quantprecision=0", "warmup_runs=3", "warmup_s=0.5", "max_warmup_s=10.0",
        "runs=20", "observed_s=0.2", "max_s=20.0", "max_runs=100000", "least_s=1.5",
    )  # fmt: skip
    assert (run.inputs_file, run.outputs_file) == ("/r/inputs", "/r/outputs")
    assert plan_of(NAME, chosen, policy).outputs_file is None
    for wrong in ({"options": (("spinning", 1),)}, {"backend": "cuda"}):
        with pytest.raises(UnsupportedError, match=r"spinning is 1|no backend 'cuda'"):
            plan_of(NAME, execution_of(NAME, **wrong))


def test_every_inference_is_a_sample() -> None:
    reading = OrtRunner().read(output(RECORDED["cpu"]))
    assert reading.sample_kind is SampleKind.PER_INFERENCE
    assert reading.samples_ns == (1_711_591, 1_609_860, 1_497_620, 1_505_884)
    assert (reading.warmup_runs, reading.warmup_ns) == (2, 4_789_454)
    assert (reading.load_ns, reading.first_inference_ns) == (479_648_703, 27_912_260)
    assert (reading.backend_nodes, reading.graph_nodes) == (5, 5)
    assert reading.memory_metric is MemoryMetric.VMHWM_GROWTH
    assert reading.baseline_memory_bytes == 55_772 * 1024
    assert reading.load_peak_memory_bytes == (85_808 - 55_772) * 1024
    assert reading.run_peak_memory_bytes == (85_824 - 55_772) * 1024
    assert reading.sustained_ns is None
    assert reading.worker is not None
    assert reading.worker.runtime_version == "1.29.0"
    sustained = OrtRunner().read(output(RECORDED["cpu"], least_s="1.5"))
    assert sustained.sustained_ns == 6_437_656


def test_memory_that_a_phone_hides_is_missing() -> None:
    text = RECORDED["cpu"].replace("memory_kib 55772 85808", "memory_kib -1 -1")
    reading = OrtRunner().read(output(text))
    assert (reading.baseline_memory_bytes, reading.run_peak_memory_bytes) == (None, None)


def test_the_nodes_on_the_backend_are_counted() -> None:
    reading = OrtRunner().read(output(RECORDED["xnnpack"], provider="xnnpack"))
    assert (reading.backend_nodes, reading.graph_nodes) == (2, 6)


@pytest.mark.parametrize(
    ("seen", "error"),
    [
        (output(RECORDED["nnapi"], provider="nnapi"), UnsupportedError),
        (output(RECORDED["no_library"], exit_code=1), UnsupportedError),
        (output(RECORDED["unknown_operator"], exit_code=1), UnsupportedError),
        (output(RECORDED["cut"], exit_code=1), BadArtifactError),
        (output(RECORDED["absent"], exit_code=1), BadArtifactError),
        (output("", exit_code=1), CrashedError),
        (output(""), BadOutputError),
        (output(RECORDED["cpu"].replace("done\n", "")), BadOutputError),
        (output(RECORDED["cpu"].replace("sample 1609860\n", "")), BadOutputError),
        (output(RECORDED["cpu"].replace("sample 1609860", "sample 0")), BadOutputError),
        (output(RECORDED["cpu"].replace("load_ns 4", "load_ns 9999999999999")), BadOutputError),
    ],
)
def test_every_bad_end_is_a_typed_error(seen: ProgramOutput, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        OrtRunner().read(seen)
    assert type(caught.value) is error


@given(st.lists(arrays(np.float32, array_shapes(min_dims=0, max_dims=4, max_side=4)), max_size=3))
def test_arrays_survive_the_way_through_the_file(given: list[np.ndarray]) -> None:
    read = list(decode_tensors(b"".join(map(encode_tensor, given))))
    assert len(read) == len(given)
    for one, other in zip(given, read, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_outputs_of_the_program_are_read() -> None:
    (scores,) = decode_tensors((DATA / "outputs.bin").read_bytes())
    assert (scores.shape, scores.dtype) == ((1, 10), np.float32)
    assert np.isfinite(scores).all()


def test_the_inputs_are_read_from_the_file() -> None:
    found = found_inputs(NETWORK.read_bytes())
    assert found == [FoundInput(name="input", sizes=(1, 3, 16, 16), dtype="float32")]
