"""One step of training as a module that holds weights, buffers and optimiser state.

A step is forward, loss, backward and update, on a fresh batch. `StepByHand` is PyTorch's own loop:
autograd and `torch.optim`. `StepGraph` is the same step as one graph without autograd, which
`torch.export` can write to a file. The second is verified against the first.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.workload import Optimizer
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.errors import ExportError
from fleetrank.models.networks.examples import (
    INPUT_SEED,
    Examples,
    seeded_images,
    stated_examples,
    whole_examples,
)

if TYPE_CHECKING:
    from torch.fx import GraphModule

LEARNING_RATE: Mapping[Optimizer, float] = {Optimizer.SGD: 1e-3, Optimizer.ADAMW: 1e-4}
"""Small: labels are random, and thousands of steps must not end in values that are not finite."""
MOMENTUM = 0.9
BETAS, EPSILON, WEIGHT_DECAY = (0.9, 0.999), 1e-8, 0.01
"""Of AdamW, the defaults of PyTorch. Source: Loshchilov and Hutter 2019, algorithm 2."""
CHECKED_STEPS = 3
"""Steps that a file is verified with: the loss of each depends on all updates before it."""
_RANDOM_LAYERS = ("Dropout", "DropPath", "StochasticDepth")
_LEAST_CLASSES = 2


def text_batches(tokens: ModelInput) -> Examples:
    """Seeded tokens (batch, length) for `CHECKED_STEPS` steps."""
    return stated_examples([tokens], tokens.shape[0], cases=CHECKED_STEPS)


def prepare(network: nn.Module) -> nn.Module:
    """The network in training mode, without the layers that drop values at random.

    Batch normalisation uses and updates the statistics of the batch. Random numbers differ between
    a graph and a loop, so that nothing could be verified.
    """
    network.train()
    for layer in network.modules():
        if any(name in type(layer).__name__ for name in _RANDOM_LAYERS):
            layer.eval()
    for parameter in network.parameters():
        parameter.requires_grad_()
    return network


def image_batches(network: nn.Module, size: int, batch: int) -> Examples:
    """Seeded images (batch, 3, size, size) and labels (batch,) for `CHECKED_STEPS` steps.

    Raises:
        ExportError: the network does not return one row of class scores for each image.
    """
    images = seeded_images(CHECKED_STEPS * batch, size).unflatten(0, (CHECKED_STEPS, batch))
    with torch.no_grad():
        scores = network.eval()(images[0, :1])
    is_rows = isinstance(scores, Tensor) and scores.ndim == 2
    if not is_rows or scores.shape[1] < _LEAST_CLASSES:
        raise ExportError(
            "a step of training needs scores of shape (batch, classes) from the network",
            "remove the workloads `train@...`, or let the network return class scores",
        )
    rng = np.random.default_rng(INPUT_SEED)
    labels = rng.integers(0, scores.shape[1], (CHECKED_STEPS, batch), dtype=np.int64)
    return whole_examples([images.numpy(), labels], batch)


class ImageLoss(nn.Module):
    """A classifier of images with its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of the class scores, the mean over the batch."""
        return nn.functional.cross_entropy(self.network(images), labels)


class TextLoss(nn.Module):
    """A decoder with its loss, over whole sequences from an empty cache."""

    def __init__(self, network: nn.Module, shape: LanguageShape) -> None:
        super().__init__()
        self.network = network
        network.scores_every_token = True
        self._cache = (shape.kv_heads, shape.head_size, 2 * shape.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Cross entropy of each next token, the mean over batch and places."""
        batch, length = tokens.shape
        heads, size, n_caches = self._cache
        caches = [torch.zeros(batch, heads, length, size) for _ in range(n_caches)]
        logits = self.network(tokens, torch.arange(length), *caches)[0]
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class StepByHand(nn.Module):
    """A step of training as PyTorch's users write it; `loss` holds the network."""

    def __init__(self, loss: nn.Module, optimizer: Optimizer) -> None:
        super().__init__()
        self.loss = loss
        rate = LEARNING_RATE[optimizer]
        self._optimizer: torch.optim.Optimizer
        if optimizer is Optimizer.SGD:
            self._optimizer = torch.optim.SGD(loss.parameters(), rate, MOMENTUM)
        else:
            self._optimizer = torch.optim.AdamW(
                loss.parameters(), rate, BETAS, EPSILON, WEIGHT_DECAY
            )

    def forward(self, *batch: Tensor) -> Tensor:
        """The loss before the update."""
        with torch.inference_mode(False), torch.enable_grad():
            self._optimizer.zero_grad()
            loss: Tensor = self.loss(*batch)
            loss.backward()
            self._optimizer.step()
        return loss.detach()


class StepGraph(nn.Module):
    """The same step as one graph; its buffers are weights, statistics and optimiser state."""

    def __init__(self, loss: nn.Module, optimizer: Optimizer, batch: tuple[Tensor, ...]) -> None:
        super().__init__()
        self._kind = optimizer
        weights, statistics = _tensors(loss.named_parameters()), _tensors(loss.named_buffers())
        self._gradients = _gradients(loss, weights, statistics, batch)
        self._counts: dict[str, int] = {}
        self._keep("weight", weights.values())
        self._keep("statistic", statistics.values())
        for number in range(optimizer.states):
            self._keep(f"state{number}", map(torch.zeros_like, weights.values()))
        self.register_buffer("steps", torch.zeros(()))

    def _keep(self, kind: str, tensors: Iterable[Tensor]) -> None:
        self._counts[kind] = 0
        for number, tensor in enumerate(tensors):
            self.register_buffer(f"{kind}_{number}", tensor.clone())
            self._counts[kind] += 1

    def _all(self, kind: str) -> list[Tensor]:
        return [getattr(self, f"{kind}_{number}") for number in range(self._counts[kind])]

    def forward(self, *batch: Tensor) -> Tensor:
        """The loss before the update."""
        weights, statistics = self._all("weight"), self._all("statistic")
        loss, gradients, changed = self._gradients(weights, statistics, batch)
        for old, new in zip(statistics, changed, strict=True):
            old.copy_(new)
        update = self._sgd if self._kind is Optimizer.SGD else self._adamw
        update(weights, gradients)
        return loss

    def _sgd(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        rate = LEARNING_RATE[Optimizer.SGD]
        for weight, gradient, speed in zip(weights, gradients, self._all("state0"), strict=True):
            speed.mul_(MOMENTUM).add_(gradient)
            weight.add_(speed, alpha=-rate)

    def _adamw(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        rate, (first, second) = LEARNING_RATE[Optimizer.ADAMW], BETAS
        self.steps.add_(1.0)
        size = rate / (1.0 - first**self.steps)
        root = (1.0 - second**self.steps).sqrt()
        moments = zip(self._all("state0"), self._all("state1"), strict=True)
        for weight, gradient, (mean, square) in zip(weights, gradients, moments, strict=True):
            weight.mul_(1.0 - rate * WEIGHT_DECAY)
            mean.lerp_(gradient, 1.0 - first)
            square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
            weight.sub_(size * mean / (square.sqrt() / root + EPSILON))


def _tensors(named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {name: one.detach() for name, one in named}


def _gradients(
    loss: nn.Module,
    weights: Mapping[str, Tensor],
    statistics: Mapping[str, Tensor],
    batch: tuple[Tensor, ...],
) -> "GraphModule":
    """A graph from (weights, statistics, batch) to (loss, gradients, new statistics).

    `torch.export` does not trace autograd; this trace holds the backward operators themselves.
    """
    from torch.func import functional_call, grad_and_value
    from torch.fx.experimental.proxy_tensor import make_fx

    def loss_and_statistics(
        given: list[Tensor], before: list[Tensor], samples: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        changed = {name: one.clone() for name, one in zip(statistics, before, strict=True)}
        tensors = dict(zip(weights, given, strict=True)) | changed
        return functional_call(loss, tensors, samples), list(changed.values())

    def compute(
        given: list[Tensor], before: list[Tensor], samples: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        found = grad_and_value(loss_and_statistics, has_aux=True)(given, before, samples)
        gradients, (value, changed) = found
        return value, gradients, changed

    # A decoder's table of angles is a constant of the graph.
    trace = make_fx(compute, tracing_mode="fake", _allow_non_fake_inputs=True)
    traced: GraphModule = trace(list(weights.values()), list(statistics.values()), batch)
    return traced
