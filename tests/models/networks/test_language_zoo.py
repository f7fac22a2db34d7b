"""The sizes of the built-in decoders and encoders of text."""

import pytest
import torch

from fleetrank.foundation.vocabulary import Family
from fleetrank.models.cards.zoo import load_language_zoo
from fleetrank.models.networks.build import build_network

POOLING = {"bert-tiny": 128 * 128 + 128, "minilm-l6": 384 * 384 + 384}
"""Parameters of the pooling layer, which the published figures include."""
PUBLISHED_PARAMETERS = {
    # The page of llama2.c rounds them to 260K, 15M, 42M and 110M; added up by hand.
    "stories260k": 260_032,
    "stories15m": 15_191_712,
    "stories42m": 41_689_600,
    "stories110m": 109_529_856,
    # The number of parameters that the models' pages state for their safetensors files.
    "smollm-135m": 134_515_008,
    "smollm-360m": 361_821_120,
    "qwen2.5-0.5b": 494_032_768,
    "gpt2": 124_439_808,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    # Biderman et al. 2023, table 1.
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "bert-tiny": 4_385_920,
    "minilm-l6": 22_713_216,
    "distilbert": 66_362_880,
}


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_a_network_has_as_many_parameters_as_published(name: str) -> None:
    with torch.device("meta"):
        built = build_network(load_language_zoo()[name], is_pretrained=False, is_trusted=False)
    found = sum(parameter.numel() for parameter in built.network.parameters())
    assert found + POOLING.get(name, 0) == PUBLISHED_PARAMETERS[name]


def test_the_zoo_has_every_architecture() -> None:
    zoo = load_language_zoo()
    assert zoo.keys() == PUBLISHED_PARAMETERS.keys()
    families = {Family.GPT, Family.OPT, Family.NEOX, Family.LLAMA, Family.ENCODER}
    assert {card.family for card in zoo.values()} == families
    assert all(card.has_attention and card.input_size is None for card in zoo.values())
