"""Loads a network's weights: pretrained, from a checkpoint, or seeded and calibrated.

Seeded weights and inputs are the same numbers on every machine.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import WeightsKind
from fleetrank.models.cards.card import ModelCard, Weights
from fleetrank.models.errors import ExportError
from fleetrank.models.networks.build import build_network

if TYPE_CHECKING:
    import torch

CASES = 16
"""Number of inputs that an artifact is verified with."""
INPUT_SEED = 20_180_601
OUTPUT_STD = 1.0
IDLE_BELOW = 1e-4
"""Scales initialised to 0 or 1e-6 (layer scale, last normalisation) make a branch output 0."""
WOKEN_SCALE = 0.2
"""Large enough to affect verification; at 0.5 LeViT's random attention saturates and amplifies
rounding errors of 1e-7 to 1e-1."""


def network_with_weights(
    card: ModelCard, weights: Weights, *, is_trusted: bool
) -> "torch.nn.Module":
    """The network in evaluation mode with exactly the requested weights.

    Raises:
        ExportError: the network, weights or checkpoint do not exist.
        UntrustedError: the network is an entry point without trust.
    """
    import torch

    torch.manual_seed(weights.seed)
    is_pretrained = weights.kind is WeightsKind.PRETRAINED
    if is_pretrained and card.weights_tag is None:
        raise ExportError(
            f"the card of {card.name} has no pretrained weights",
            "add weights_tag to the card, or use seeded weights",
        )
    try:
        network = build_network(card, is_pretrained=is_pretrained, is_trusted=is_trusted)
    except OSError as error:
        raise ExportError(
            f"the weights of {card.name} could not be loaded: {error}",
            "check the network connection, or use seeded weights",
        ) from error
    if weights.kind is WeightsKind.CHECKPOINT:
        load_checkpoint(network, weights)
    elif weights.kind is WeightsKind.SEEDED:
        # The same images as in verification, so that they match the fitted statistics.
        calibrate(network, seeded_images(CASES, card.input_size or 224))
    return network


def load_checkpoint(network: "torch.nn.Module", weights: Weights) -> None:
    """Loads a local state dict without running any code in it.

    Raises:
        ExportError: not a state dict, from another network, or changed since it was planned.
    """
    import torch

    path = Path(weights.checkpoint_path or "")
    try:
        is_same = weights.checkpoint_sha256 in (None, file_sha256(path))
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many classes here: UnpicklingError, EOFError, ...
        raise ExportError(
            f"checkpoint {path} cannot be used: {error}",
            "save it with torch.save(network.state_dict(), path) from the same network",
        ) from error
    if not is_same:
        raise ExportError(
            f"checkpoint {path} changed after the sweep was planned", "start a new sweep"
        )


def calibrate(network: "torch.nn.Module", images: "torch.Tensor") -> None:
    """Makes random weights behave like trained ones, so that values neither vanish nor overflow.

    Branches whose initial output is 0 get larger scales, because verification would not test them.
    Batch normalisation gets the statistics of `images`. The last layer is scaled to outputs of
    standard deviation 1. Plain random weights shrink EfficientNet's outputs to 1e-20, and
    denormals change latency.
    """
    import torch

    with torch.no_grad():
        _wake_silent_scales(network)
        _fit_normalisation(network, images)
        std = float(_first_tensor(network(images[:4])).std())
        last = _last_linear_map(network, images[:1])
        for parameter in () if last is None or std == 0 else last.parameters(recurse=False):
            parameter.mul_(OUTPUT_STD / std)


def _wake_silent_scales(network: "torch.nn.Module") -> None:
    for name, parameter in network.named_parameters():
        is_bias = "bias" in name.rpartition(".")[2]
        if not is_bias and parameter.numel() and float(parameter.abs().max()) < IDLE_BELOW:
            parameter.fill_(WOKEN_SCALE)


def _fit_normalisation(network: "torch.nn.Module", images: "torch.Tensor") -> None:
    import torch

    layers = [
        module
        for module in network.modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # plain mean over the images, not a moving average
        layer.train()
    network(images)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()


def _last_linear_map(network: "torch.nn.Module", image: "torch.Tensor") -> "torch.nn.Module | None":
    """The last fully connected or convolutional layer that was executed."""
    import torch

    seen: list[torch.nn.Module] = []
    kinds = (torch.nn.Linear, torch.nn.Conv2d)
    hooks = [
        module.register_forward_hook(lambda layer, _inputs, _output: seen.append(layer))
        for module in network.modules()
        if isinstance(module, kinds)
    ]
    network(image)
    for hook in hooks:
        hook.remove()
    return seen[-1] if seen else None


def _first_tensor(output: object) -> "torch.Tensor":
    import torch
    from torch.utils import _pytree

    tensors = [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise ExportError("the network returns no tensor", "return a tensor or a tuple of tensors")
    return tensors[0]


def seeded_images(count: int, size: int, seed: int = INPUT_SEED) -> "torch.Tensor":
    """Standard normal images of shape (count, 3, size, size), as normalised photographs are."""
    import torch

    # NumPy's generator, not torch's, because NumPy guarantees its stream across versions.
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((count, 3, size, size), dtype=np.float32)
    return torch.from_numpy(values)
