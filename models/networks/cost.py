"""Parameters and multiply-accumulates of a network, counted on its traced graph."""

import math
from typing import TYPE_CHECKING

from fleetrank.foundation.vocabulary import FlopsMethod
from fleetrank.models.cards.card import Cost, ModelCard

if TYPE_CHECKING:
    import torch

ELEMENTWISE_FLOPS = 5
"""FLOPs per element of a softmax or a layer normalisation.

Source: google-research/electra, flops_computation.py (SOFTMAX_FLOPS, LAYER_NORM_FLOPS). Batch
normalisation counts as zero: at inference it is folded into the convolution before it.
"""


def count_cost(network: "torch.nn.Module", image: "torch.Tensor") -> Cost:
    """Cost of one inference on `image` of shape (1, 3, height, width).

    MACs are those of convolutions and matrix products, plus half of `ELEMENTWISE_FLOPS` for each
    element of softmax and layer normalisation. Fused attention is disabled while counting,
    because PyTorch's counter does not count the products inside it.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    aten = torch.ops.aten
    extra = dict.fromkeys((aten._softmax, aten._safe_softmax, aten.native_layer_norm), _elementwise)
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        counter = FlopCounterMode(display=False, custom_mapping=extra)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            network(image)
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)
    return Cost(
        macs=round(counter.get_total_flops() / 2),
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        method=FlopsMethod.COUNTED,
    )


def stated_cost(card: ModelCard, counted: Cost | None) -> Cost:
    """The card's figures where stated, otherwise the counted ones.

    MACs that are neither stated nor counted stay `None`, and figures that need them exclude the
    model. They are not guessed from the number of parameters: for a convolutional network that
    guess is ten to a hundred times too low.
    """
    parameters = card.parameters
    if parameters is None and counted is not None:
        parameters = counted.parameters
    if card.macs is not None:
        return Cost(macs=card.macs, parameters=parameters, method=FlopsMethod.FORMULA)
    if counted is not None and counted.macs is not None:
        return Cost(macs=counted.macs, parameters=parameters, method=counted.method)
    return Cost(macs=None, parameters=parameters, method=None)


def _elementwise(shape: tuple[int, ...], *_: object, **__: object) -> int:
    return ELEMENTWISE_FLOPS * math.prod(shape)
