"""Stated inputs beside those of a file, and their values."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from wording import has

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import LostArtifactError, UnsupportedError
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, specs_of
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Runtime

IDS = ModelInput(name="ids", shape=(2, 5), dtype="int64", values=Values(low=0, high=9))
MASK = ModelInput(name="mask", shape=(2, 5), dtype="bool", values=Values(low=1, high=1))
FOUND = [
    FoundInput(name="ids", sizes=(None, None), dtype="int64"),
    FoundInput(name="mask", sizes=(2, None), dtype="bool"),
]


def execution(*inputs: ModelInput) -> Execution:
    return Execution(runtime=Runtime.ONNX, backend="cpu", inputs=inputs)


def test_open_sizes_become_the_stated_ones() -> None:
    specs = specs_of(FOUND, execution(IDS, MASK))
    assert [(spec.name, spec.shape) for spec in specs] == [("ids", (2, 5)), ("mask", (2, 5))]
    assert [spec.values for spec in specs] == [IDS.values, MASK.values]


def test_names_decide_the_order_and_places_do_where_an_exporter_renamed_them() -> None:
    assert [spec.values for spec in specs_of(FOUND, execution(MASK, IDS))] == [
        IDS.values,
        MASK.values,
    ]
    renamed = [replace(one, name=f"serving_default_args_{i}:0") for i, one in enumerate(FOUND)]
    assert specs_of(renamed, execution(IDS, MASK))[1].values == MASK.values
    tensorflow = [replace(one, name=f"serving_default_{one.name}:0") for one in FOUND]
    assert specs_of(tensorflow, execution(MASK, IDS))[0].values == IDS.values


def test_an_exporter_may_round_floats_and_shorten_indices() -> None:
    short = [replace(FOUND[0], dtype="int32"), FOUND[1]]
    assert specs_of(short, execution(IDS, MASK))[0].dtype == "int32"


@pytest.mark.parametrize(
    "change",
    [{"sizes": (3, None)}, {"sizes": (None, None, None)}, {"dtype": "float32"}, {"dtype": "bool"}],
)
def test_a_file_that_contradicts_the_card_is_refused(change) -> None:
    with pytest.raises(UnsupportedError) as caught:
        specs_of([replace(FOUND[0], **change), FOUND[1]], execution(IDS, MASK))
    assert has(caught.value.message, "'ids'", "[2, 5]")


def test_another_number_of_inputs_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"takes 2 inputs.*states 1"):
        specs_of(FOUND, execution(IDS))


@pytest.mark.parametrize(
    ("dtype", "values", "low", "high"),
    [
        ("int64", Values(low=3, high=7), 3, 7),
        ("int32", Values(low=0, high=0), 0, 0),
        ("uint8", Values(), 0, 255),
        ("int64", Values(), 0, 1),
        ("bool", Values(low=1, high=1), 1, 1),
        ("float32", Values(low=-2, high=0.5), -2, 0.5),
        ("float16", Values(low=1.5, high=1.5), 1.5, 1.5),
    ],
)
def test_values_keep_to_their_rule(dtype: str, values: Values, low: float, high: float) -> None:
    spec = ModelInput(name="x", shape=(40, 50), dtype=dtype, values=values)
    (array,) = make_inputs([spec], seed=1)
    assert (array.dtype.name, array.shape) == (dtype, (40, 50))
    assert low <= array.min()
    assert array.max() <= high
    if low < high:
        assert array.max() - array.min() > 0.9 * (high - low)
    np.testing.assert_array_equal(array, make_inputs([spec], seed=1)[0])


def test_stored_values_are_used_as_they_are_and_only_if_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    stored = np.arange(6).reshape(2, 3)
    np.save(path, stored)
    values = Values(path=str(path), sha256=file_sha256(path))
    spec = ModelInput(name="x", shape=(2, 3), dtype="int64", values=values)
    np.testing.assert_array_equal(make_inputs([spec], 0)[0], stored)
    with pytest.raises(UnsupportedError, match=r"\(2, 3\)"):
        make_inputs([replace(spec, shape=(3, 2))], 0)
    np.save(path, stored + 1)
    with pytest.raises(LostArtifactError, match="changed"):
        make_inputs([spec], 0)
    path.unlink()
    with pytest.raises(LostArtifactError, match="on this host"):
        make_inputs([spec], 0)
