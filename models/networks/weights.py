"""Loads a network's weights: pretrained, from a checkpoint, or seeded and calibrated.

Seeded weights are the same numbers on every machine.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import WeightsKind
from fleetrank.foundation.workload import IMAGE, Workload
from fleetrank.models.cards.card import ModelCard, Weights
from fleetrank.models.cards.language import MEMORY, LanguageShape
from fleetrank.models.errors import ExportError, ModelError
from fleetrank.models.networks.build import Built, build_network
from fleetrank.models.networks.examples import (
    Arguments,
    Examples,
    given_examples,
    image_examples,
    stated_examples,
)
from fleetrank.models.published import checkpoint_sha256, load_folder

if TYPE_CHECKING:
    import torch

OUTPUT_STD = 1.0
IDLE_BELOW = 1e-4
"""Scales initialised to 0 or 1e-6 (layer scale, last normalisation) make a branch output 0."""
WOKEN_SCALE = 0.2
"""Large enough to affect verification; at 0.5 LeViT's random attention saturates and amplifies
rounding errors of 1e-7 to 1e-1."""


def network_with_weights(
    card: ModelCard,
    weights: Weights,
    *,
    is_trusted: bool,
    inputs: Sequence[ModelInput] = (),
    batch: int = 1,
    workload: Workload = IMAGE,
) -> tuple["torch.nn.Module", Examples]:
    """The network in evaluation mode with exactly the requested weights, and inputs for it.

    Args:
        card: of the network.
        weights: which weights.
        is_trusted: the user allowed the code of entry points to run.
        inputs: what the card states; without them the inputs that the entry point returned, or
            images of the card's size.
        batch: samples in one call.
        workload: what one inference does; segments of a long text need a memory.

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
        built = build_network(
            card, is_pretrained=is_pretrained, is_trusted=is_trusted, workload=workload
        )
    except OSError as error:
        raise ExportError(
            f"the weights of {card.name} could not be loaded: {error}",
            "check the network connection, or use seeded weights",
        ) from error
    examples = _examples(card, built, inputs, batch)
    if weights.kind is WeightsKind.CHECKPOINT:
        load_checkpoint(built.network, weights, card.language)
    elif weights.kind is WeightsKind.SEEDED and card.language is None:
        # Decoders and encoders of text initialise themselves so that nothing vanishes.
        calibrate(built.network, examples.fit, examples.probe)
    return built.network, examples


def _examples(card: ModelCard, built: Built, inputs: Sequence[ModelInput], batch: int) -> Examples:
    if card.language is not None:
        # Sixteen caches can be larger than the network; `write_sequence` makes its own inputs.
        return stated_examples(inputs, batch, cases=1)
    if inputs:
        return stated_examples(inputs, batch)
    if built.examples:
        return given_examples(built.examples, batch)
    return image_examples(card.input_size or 224, batch)


def load_checkpoint(
    network: "torch.nn.Module", weights: Weights, shape: LanguageShape | None = None
) -> None:
    """Loads a local state dict, or a published model's folder, without running any code in it.

    Raises:
        ExportError: not a state dict, from another network, or changed since it was planned.
    """
    path = Path(weights.checkpoint_path or "")
    try:
        is_same = weights.checkpoint_sha256 in (None, checkpoint_sha256(path))
        _load(network, path, shape)
    except ModelError:
        raise
    except Exception as error:  # torch raises many classes here: UnpicklingError, EOFError, ...
        raise ExportError(
            f"checkpoint {path} cannot be used: {error}",
            "save it with torch.save(network.state_dict(), path) from the same network",
        ) from error
    if not is_same:
        raise ExportError(
            f"checkpoint {path} changed after the sweep was planned", "start a new sweep"
        )


def _load(network: "torch.nn.Module", path: Path, shape: LanguageShape | None) -> None:
    import torch

    if not path.is_dir():
        state = torch.load(path, map_location="cpu", weights_only=True)
        _refuse_wrapped(path, state)
        if shape is not None and getattr(network, MEMORY, None) is None:
            # The weights of a memory are for `segment` alone.
            state = {name: one for name, one in state.items() if not name.startswith(f"{MEMORY}.")}
        network.load_state_dict(state)
    elif shape is not None:
        load_folder(network, shape, path)
    else:
        raise ExportError(
            f"checkpoint {path} is a folder, which only decoders and encoders of text have",
            "give the path of a state dict",
        )


def _refuse_wrapped(path: Path, state: object) -> None:
    """Names the key of a state dict inside a training checkpoint, with optimizer and epoch."""
    import torch

    if not isinstance(state, dict) or any(isinstance(one, torch.Tensor) for one in state.values()):
        return
    for key, inner in state.items():
        if isinstance(inner, dict) and any(isinstance(one, torch.Tensor) for one in inner.values()):
            raise ExportError(
                f"checkpoint {path} holds its state dict under the key {key!r}",
                f"unwrap the key {key!r}: torch.save(torch.load(path)[{key!r}], new_path)",
            )


def calibrate(network: "torch.nn.Module", fit: Sequence[Arguments], probe: Arguments) -> None:
    """Makes random weights behave like trained ones, so that values neither vanish nor overflow.

    Branches whose initial output is 0 get larger scales, because verification would not test them.
    Batch normalisation gets the statistics of `fit`. The last layer is scaled to outputs of
    standard deviation 1 for `probe`. Plain random weights shrink EfficientNet's outputs to 1e-20,
    and denormals change latency.
    """
    import torch

    with torch.no_grad():
        _wake_silent_scales(network)
        _fit_normalisation(network, fit)
        std = float(_first_tensor(network(*probe)).float().std())
        last = _last_linear_map(network, probe)
        has_scale = std > 0 and math.isfinite(std)
        for parameter in last.parameters(recurse=False) if last is not None and has_scale else ():
            parameter.mul_(OUTPUT_STD / std)


def _wake_silent_scales(network: "torch.nn.Module") -> None:
    for name, parameter in network.named_parameters():
        is_bias = "bias" in name.rpartition(".")[2]
        if not is_bias and parameter.numel() and float(parameter.abs().max()) < IDLE_BELOW:
            parameter.fill_(WOKEN_SCALE)


def _fit_normalisation(network: "torch.nn.Module", fit: Sequence[Arguments]) -> None:
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
    for arguments in fit if layers else ():
        network(*arguments)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()


def _last_linear_map(network: "torch.nn.Module", probe: Arguments) -> "torch.nn.Module | None":
    """The last fully connected or convolutional layer that was executed."""
    import torch

    seen: list[torch.nn.Module] = []
    kinds = (torch.nn.Linear, torch.nn.Conv2d)
    hooks = [
        module.register_forward_hook(lambda layer, _inputs, _output: seen.append(layer))
        for module in network.modules()
        if isinstance(module, kinds)
    ]
    network(*probe)
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
