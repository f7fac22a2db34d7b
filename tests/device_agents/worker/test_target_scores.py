"""Scores of targets against SciPy, by a model that gives known logits."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from fleetrank.device_agents.contract.runtime import Array, Scale
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.runtimes.tflite_runner import TfliteRunner
from fleetrank.device_agents.worker.target_scores import score_cases
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import Runtime


class Echo:
    """Its output is its first input; the second one is a state."""

    settings = ()
    inputs = (
        ModelInput(name="x", shape=(1, 5, 7), dtype="float32"),
        ModelInput(name="kept", shape=(2,), dtype="float32", state="next_kept"),
    )

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        self.given = arrays

    def run(self) -> None:
        pass

    def outputs(self) -> list[Array]:
        return list(self.given)


def test_scores_equal_scipy_and_a_sort() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=8, size=(3, 1, 5, 7)).astype("float32")
    targets = rng.integers(-1, 7, (3, 5))
    probable, before, n_classes = score_cases(Echo(), {"input_0": logits, "targets": targets})
    assert n_classes.tolist() == [7]
    for case, row in np.argwhere(targets < 0):
        assert (probable[case, row], before[case, row]) == (0.0, -1)
    for case, row in np.argwhere(targets >= 0):
        wanted = targets[case, row]
        of_row = logits[case, 0, row].astype(float)
        assert probable[case, row] == pytest.approx(log_softmax(of_row)[wanted], rel=1e-12)
        order = np.argsort(-of_row, kind="stable").tolist()
        assert before[case, row] == order.index(wanted)


def test_of_equal_scores_only_one_class_is_first() -> None:
    stored = {"input_0": np.zeros((1, 1, 5, 7)), "targets": np.array([[0, 1, 2, 6, -1]])}
    probable, before, _ = score_cases(Echo(), stored)
    assert before.tolist() == [[0, 1, 2, 6, -1]]
    np.testing.assert_allclose(probable[0, :4], -np.log(7))


def test_logits_that_overflow_a_float_are_no_trouble() -> None:
    logits = np.zeros((1, 1, 5, 7))
    logits[..., 3] = 3e38
    probable, _, _ = score_cases(Echo(), {"input_0": logits, "targets": np.full((1, 5), 3)})
    assert probable.tolist() == [[0.0] * 5]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_has_no_probability(bad: float) -> None:
    logits = np.zeros((1, 1, 5, 7))
    logits[0, 0, 1, 4] = bad
    logits[0, 0, 2, :] = bad
    logits[0, 0, 3, 6] = -np.inf
    logits[0, 0, 4, 0] = -np.inf
    probable, _, _ = score_cases(
        Echo(), {"input_0": logits, "targets": np.zeros((1, 5), dtype=int)}
    )
    # A class that can never come is fine, unless it is the wanted one.
    assert np.isfinite(probable[0]).tolist() == [True, False, False, True, False]


class Bytes(Echo):
    """Echoes unsigned bytes; the file may say what they mean."""

    inputs = (ModelInput(name="x", shape=(1, 5, 7), dtype="uint8"),)


class Quantized(Bytes):
    input_scales = (Scale(step=0.25, zero=100),)
    output_scales = (Scale(step=0.5, zero=90),)


def test_values_are_quantised_as_the_file_states_it_and_scores_mean_what_it_says() -> None:
    values = np.random.default_rng(0).normal(scale=60, size=(1, 1, 5, 7))
    targets = np.array([[0, 1, 2, 3, 4]])
    model = Quantized()
    probable, _, _ = score_cases(model, {"input_0": values, "targets": targets})
    stored = np.clip(np.rint(values[0] / 0.25) + 100, 0, 255)
    assert {0, 255} <= set(stored.ravel().tolist())
    np.testing.assert_array_equal(model.given[0], stored)
    assert model.given[0].dtype == np.uint8
    wanted = log_softmax(0.5 * (stored[0] - 90), axis=-1)[np.arange(5), targets[0]]
    np.testing.assert_allclose(probable[0], wanted)


def test_values_for_integers_without_a_scale_are_refused() -> None:
    stored = {"input_0": np.zeros((1, 1, 5, 7)), "targets": np.zeros((1, 5), dtype=int)}
    with pytest.raises(BadArtifactError, match="'x' takes uint8"):
        score_cases(Bytes(), stored)
    stored["input_0"] = stored["input_0"].astype(np.int64)
    assert score_cases(Bytes(), stored)


class Scaled(Echo):
    """Takes a number beside its first input."""

    inputs = (*Bytes.inputs, ModelInput(name="gain", shape=(), dtype="float32"))


def test_a_scalar_input_without_data_is_refused_and_is_no_zero() -> None:
    stored = {"input_0": np.zeros((1, 1, 5, 7), np.uint8), "targets": np.zeros((1, 5), dtype=int)}
    with pytest.raises(BadArtifactError, match="'gain' has the shape"):
        score_cases(Scaled(), stored)
    assert score_cases(Scaled(), stored | {"input_1": np.ones(1, np.float32)})


@pytest.mark.slow
def test_litert_says_what_the_integers_of_a_file_mean() -> None:
    path = Path(__file__).parents[2] / "models" / "data" / "uint8.tflite"
    execution = Execution(runtime=Runtime.TFLITE, backend="xnnpack")
    model = TfliteRunner().load(str(path), execution)
    (given,), (made,) = model.input_scales, model.output_scales
    assert (given.step, given.zero) == (pytest.approx(1 / 255, rel=0.1), 0)
    assert made.step > 0


@pytest.mark.parametrize(
    ("shape", "targets", "said"),
    [
        ((1, 1, 5, 7), [[7, 0, 0, 0, 0]], "class 7 does not exist"),
        ((1, 1, 5, 7), [[0, 1]], "5 rows"),
        ((1, 1, 4, 7), [[0] * 5], "shape"),
    ],
)
def test_what_does_not_fit_is_named(
    shape: tuple[int, ...], targets: list[list[int]], said: str
) -> None:
    stored = {"input_0": np.zeros(shape), "targets": np.array(targets)}
    with pytest.raises(BadArtifactError, match=said):
        score_cases(Echo(), stored)
