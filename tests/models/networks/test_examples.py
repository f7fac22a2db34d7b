"""The inputs that a network is exported with, and what entry points may return."""

from pathlib import Path

import numpy as np
import pytest
import torch
from wording import has

from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.vocabulary import Family, WeightsKind
from fleetrank.models.cards.card import ModelCard, Source, Weights
from fleetrank.models.errors import ExportError
from fleetrank.models.networks.build import build_network
from fleetrank.models.networks.cost import count_cost
from fleetrank.models.networks.examples import (
    CASES,
    given_examples,
    image_examples,
    stated_examples,
)
from fleetrank.models.networks.weights import network_with_weights

IDS = ModelInput(name="ids", shape=(2, 6), dtype="int64", values=Values(low=0, high=49))
MASK = ModelInput(name="mask", shape=(2, 6), dtype="bool", values=Values(low=1, high=1))
SOURCE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 8)
        self.last = torch.nn.Linear(8, 3)
    def forward(self, ids, mask):
        return self.last((self.table(ids) * mask.unsqueeze(-1)).sum(dim=1))

ids, mask = torch.full((1, 6), 7), torch.ones(1, 6, dtype=torch.bool)
def bare(): return Net()
def pair(): return Net(), (ids, mask)
def named(): return Net(), {"mask": mask, "ids": ids}
def wrong_name(): return Net(), {"mask": mask, "idz": ids}
def no_tensor(): return Net(), (1, 2)
def nothing(): return 3
"""


@pytest.fixture
def card_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"nets_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(SOURCE)

    def make(function: str) -> ModelCard:
        return ModelCard(
            name="mine",
            family=Family.OTHER,
            source=Source.ENTRY_POINT,
            entry=f"{module}:{function}",
        )

    return make


def build(card: ModelCard):
    return build_network(card, is_pretrained=False, is_trusted=True)


def test_stated_inputs_keep_to_shape_type_and_rule() -> None:
    examples = stated_examples([IDS, MASK], batch=2)
    assert examples.has_whole_cases
    assert [array.shape for array in examples.stored] == [(CASES, 2, 6)] * 2
    ids, mask = examples.traced
    assert (ids.dtype, mask.dtype) == (torch.int64, torch.bool)
    assert int(examples.stored[0].max()) <= 49
    assert len(examples.calls) == CASES
    again = stated_examples([IDS, MASK], batch=2)
    np.testing.assert_array_equal(again.stored[0], examples.stored[0])


@pytest.mark.parametrize("function", ["pair", "named"])
def test_an_entry_point_may_return_its_inputs_in_any_order_of_names(card_of, function) -> None:
    built = build(card_of(function))
    assert [tensor.dtype for tensor in built.examples] == [torch.int64, torch.bool]
    assert build(card_of("bare")).examples == ()


@pytest.mark.parametrize(
    ("function", "word"), [("wrong_name", "tensors"), ("no_tensor", "tensors"), ("nothing", "int")]
)
def test_wrong_returns_of_an_entry_point_are_named(card_of, function: str, word: str) -> None:
    with pytest.raises(ExportError) as caught:
        build(card_of(function))
    assert has(caught.value.message, function, word)


def test_examples_for_another_batch_are_refused() -> None:
    tensors = (torch.ones(1, 6),)
    assert len(given_examples(tensors, batch=1).calls) == 1
    with pytest.raises(ExportError, match="another batch than 4"):
        given_examples(tensors, batch=4)


def test_seeded_weights_suit_a_network_of_two_inputs(card_of) -> None:
    network, examples = network_with_weights(
        card_of("bare"), Weights(), is_trusted=True, inputs=(IDS, MASK), batch=2
    )
    with torch.no_grad():
        assert float(network(*examples.probe).std()) == pytest.approx(1.0, rel=1e-3)


def test_cost_is_that_of_one_sample_also_for_a_larger_batch(card_of) -> None:
    network = build(card_of("bare")).network
    for batch in (1, 2):
        shape = (batch, 6)
        inputs = [
            ModelInput(name=one.name, shape=shape, dtype=one.dtype, values=one.values)
            for one in (IDS, MASK)
        ]
        examples = stated_examples(inputs, batch)
        cost = count_cost(network, examples.counted, examples.counted_batch)
        assert cost.macs == 8 * 3


def test_a_recurrent_layer_is_counted_step_by_step() -> None:
    lstm = torch.nn.LSTM(4, 5).eval()
    cost = count_cost(lstm, (torch.zeros(7, 1, 4),))
    assert cost.macs == 7 * 4 * 5 * (4 + 5)


def test_images_are_the_same_numbers_for_every_batch() -> None:
    one, many = image_examples(8, 1), image_examples(8, 3)
    np.testing.assert_array_equal(one.stored[0], many.stored[0][:CASES])
    assert [len(call[0]) for call in many.calls] == [3] * 6
    assert torch.equal(one.fit[0][0], many.fit[0][0])


def test_a_wrapped_state_dict_names_the_key_to_unwrap(card_of, tmp_path: Path) -> None:
    network = build(card_of("bare")).network
    torch.save({"epoch": 3, "model": network.state_dict()}, tmp_path / "c.pt")
    weights = Weights(kind=WeightsKind.CHECKPOINT, checkpoint_path=str(tmp_path / "c.pt"))
    with pytest.raises(ExportError) as caught:
        network_with_weights(card_of("bare"), weights, is_trusted=True, inputs=(IDS, MASK), batch=2)
    assert "unwrap the key 'model'" in caught.value.remedy
