"""The graph of a training step against PyTorch's own loop, step after step."""

import copy
import itertools
from collections.abc import Iterator

import pytest
import torch
from daily import daily
from language_shapes import SHAPES
from torch import nn

from fleetrank.foundation.inputs import ModelInput, Values
from fleetrank.foundation.workload import Optimizer
from fleetrank.models.errors import ExportError
from fleetrank.models.networks.cost import count_cost
from fleetrank.models.networks.decoder import Decoder
from fleetrank.models.networks.training import (
    ImageLoss,
    StepByHand,
    StepGraph,
    TextLoss,
    image_batches,
    prepare,
    text_batches,
)

SIZE, BATCH, STEPS = 12, 4, 6


class Classifier(nn.Module):
    """Groups, normalisation with statistics, dropout and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            # A bias before a normalisation has the gradient 0, and AdamW would follow its rounding.
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, groups=8, bias=False),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(200, 10),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


@pytest.fixture
def network() -> Iterator[nn.Module]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    yield Classifier()
    torch.set_num_threads(threads)


@pytest.mark.parametrize("optimizer", daily(Optimizer, Optimizer.ADAMW))
def test_a_graph_takes_the_same_steps_as_a_loop(network: nn.Module, optimizer: Optimizer) -> None:
    batches = image_batches(network, SIZE, BATCH)
    loss = ImageLoss(prepare(network))
    graph = StepGraph(loss, optimizer, batches.traced)
    by_hand = StepByHand(loss, optimizer)
    exported = torch.export.export(graph, batches.traced).module()
    for step in range(STEPS):
        batch = batches.calls[step % len(batches.calls)]
        torch.testing.assert_close(exported(*batch), by_hand(*batch), rtol=1e-5, atol=1e-6)
    state = dict(exported.named_buffers())
    for number, weight in enumerate(network.parameters()):
        torch.testing.assert_close(state[f"weight_{number}"], weight.detach(), rtol=1e-4, atol=1e-6)
    for number, statistic in enumerate(network.buffers()):
        torch.testing.assert_close(state[f"statistic_{number}"], statistic)


def test_a_step_changes_weights_and_statistics(network: nn.Module) -> None:
    batches = image_batches(network, SIZE, BATCH)
    graph = StepGraph(ImageLoss(prepare(network)), Optimizer.SGD, batches.traced)
    before = copy.deepcopy(dict(graph.named_buffers()))
    graph(*batches.traced)
    for name, tensor in graph.named_buffers():
        assert name == "steps" or not torch.equal(tensor, before[name]), name


def test_the_cost_of_a_step_counts_groups_once(network: nn.Module) -> None:
    batches = image_batches(network, SIZE, BATCH)
    forward = count_cost(network.eval(), (batches.traced[0],), BATCH)
    step = count_cost(StepByHand(ImageLoss(prepare(network)), Optimizer.SGD), batches.traced, BATCH)
    first = SIZE * SIZE * 8 * 3 * 9  # no gradient of the images themselves
    assert forward.macs is not None
    assert step.macs == 3 * forward.macs - first
    assert step.parameters == forward.parameters


@pytest.mark.parametrize("optimizer", list(Optimizer))
def test_an_optimiser_keeps_as_many_tensors_as_it_says(
    network: nn.Module, optimizer: Optimizer
) -> None:
    batches = image_batches(network, SIZE, BATCH)
    graph = StepGraph(ImageLoss(prepare(network)), optimizer, batches.traced)
    held = {
        kind: sum(one.nbytes for name, one in graph.named_buffers() if name.startswith(kind))
        for kind in ("weight", "state")
    }
    assert held["state"] == optimizer.states * held["weight"]


def test_a_network_without_class_scores_is_refused() -> None:
    with pytest.raises(ExportError) as found:
        image_batches(nn.Conv2d(3, 2, 3), SIZE, BATCH)
    assert "train@" in found.value.remedy


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "optimizer"),
    daily(itertools.product(SHAPES, Optimizer), ("gpt", Optimizer.ADAMW)),
)
def test_a_decoder_takes_the_same_steps_as_a_loop(name: str, optimizer: Optimizer) -> None:
    shape = SHAPES[name]
    torch.manual_seed(5)
    ids = Values(low=0.0, high=float(shape.vocabulary - 1))
    tokens = ModelInput(name="tokens", shape=(2, 6), dtype="int64", values=ids)
    batches = text_batches(tokens)
    loss = TextLoss(prepare(Decoder(shape)), shape)
    graph = StepGraph(loss, optimizer, batches.traced)
    by_hand = StepByHand(loss, optimizer)
    exported = torch.export.export(graph, batches.traced).module()
    for batch in batches.calls:
        torch.testing.assert_close(exported(*batch), by_hand(*batch), rtol=1e-4, atol=1e-5)


def test_the_loss_of_a_decoder_is_that_of_each_next_token() -> None:
    shape = SHAPES["llama"]
    torch.manual_seed(5)
    decoder = Decoder(shape)
    tokens = torch.randint(0, shape.vocabulary, (2, 5))
    loss = TextLoss(decoder, shape)(tokens)
    decoder.scores_every_token = False
    caches = [torch.zeros(2, shape.kv_heads, 5, shape.head_size) for _ in range(2 * shape.layers)]
    by_place = []
    for place in range(4):  # one prompt for each place, with the logits of its last token
        logits = decoder(tokens[:, : place + 1], torch.arange(place + 1), *caches)[0]
        by_place.append(nn.functional.cross_entropy(logits, tokens[:, place + 1]))
    torch.testing.assert_close(loss, torch.stack(by_place).mean(), rtol=1e-4, atol=1e-5)
