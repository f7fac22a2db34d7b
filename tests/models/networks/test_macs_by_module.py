"""MACs of each module of a network, against formulas written by hand."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.networks.cost import count_cost
from fleetrank.models.networks.decoder import Decoder

WIDTH, WORDS, TOKENS = 8, 50, 5


class Tied(nn.Module):
    """Blocks in a list, which is never called, and an output layer that is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(3)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        values = self.embedding(tokens)
        for block in self.blocks:
            values = block(values)
        return nn.functional.linear(values, self.embedding.weight)


@pytest.mark.parametrize("batch", [1, 4])
def test_each_product_counts_for_its_module_alone(batch: int) -> None:
    tokens = torch.zeros(batch, TOKENS, dtype=torch.int64)
    cost = count_cost(Tied().eval(), (tokens,), batch)
    layer = TOKENS * WIDTH * 2 * WIDTH
    expected = {
        (f"blocks.{block}.{place}", "linear"): layer for block in range(3) for place in (0, 2)
    }
    expected["", "linear"] = TOKENS * WIDTH * WORDS
    assert {(path, name): macs for path, name, macs in cost.by_module} == expected
    assert cost.macs == sum(expected.values())


def test_a_module_that_is_used_twice_counts_twice() -> None:
    shared = nn.Linear(WIDTH, WIDTH)
    cost = count_cost(nn.Sequential(shared, nn.ReLU(), shared).eval(), (torch.zeros(1, WIDTH),))
    assert sum(macs for *_, macs in cost.by_module) == cost.macs == 2 * WIDTH * WIDTH


def test_convolutions_softmax_and_norms_have_their_names() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.LayerNorm(4), nn.Softmax(-1)
    ).eval()
    found = count_cost(network, (torch.zeros(1, 3, 4, 4),)).by_module
    assert [(path, name) for path, name, _ in found] == [
        ("0", "conv2d"), ("2", "layer_norm"), ("3", "softmax"),
    ]  # fmt: skip
    assert found[0][2] == 4 * 4 * 3 * 9


def test_the_parts_of_a_decoder_are_its_whole() -> None:
    shape = load_language_zoo()["stories260k"].language
    assert shape is not None
    caches = [torch.zeros(1, shape.kv_heads, 16, shape.head_size) for _ in range(2 * shape.layers)]
    call = (torch.zeros(1, 4, dtype=torch.int64), torch.arange(4), *caches)
    network = Decoder(shape).eval()
    cost = count_cost(network, call)
    assert cost.macs == pytest.approx(sum(macs for *_, macs in cost.by_module), abs=100)
    names = {name for name, _ in network.named_modules()}
    assert {path for path, *_ in cost.by_module} <= names
    blocks = Counter(path.split(".")[1] for path, *_ in cost.by_module if path.startswith("blocks"))
    assert len(blocks) == shape.layers
