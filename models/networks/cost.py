"""Parameters and multiply-accumulates of a network, counted on its traced graph."""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetrank.foundation.vocabulary import FlopsMethod
from fleetrank.foundation.workload import IMAGE, Workload, WorkloadKind
from fleetrank.models.cards.card import Cost, ModelCard, Source
from fleetrank.models.cards.language import DECODER_WORKLOADS

if TYPE_CHECKING:
    import torch

ELEMENTWISE_FLOPS = 5
"""FLOPs per element of a softmax or a layer normalisation.

Source: google-research/electra, flops_computation.py (SOFTMAX_FLOPS, LAYER_NORM_FLOPS). Batch
normalisation counts as zero: at inference it is folded into the convolution before it.
"""


def count_cost(
    network: "torch.nn.Module", arguments: tuple["torch.Tensor", ...], batch: int = 1
) -> Cost:
    """Cost of one inference at batch 1, counted on a call for `batch` samples.

    MACs are those of convolutions and matrix products, plus half of `ELEMENTWISE_FLOPS` for each
    element of softmax and layer normalisation. Fused attention is disabled while counting,
    because PyTorch's counter does not count the products inside it. The same holds for oneDNN's
    fused recurrent layers.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    aten = torch.ops.aten
    elementwise = (aten._softmax, aten._safe_softmax, aten.native_layer_norm)
    extra: dict[object, Callable[..., int]] = dict.fromkeys(
        elementwise, lambda shape, *_, **__: ELEMENTWISE_FLOPS * math.prod(shape)
    )
    extra[aten.convolution_backward] = _backward_convolution
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    # Not `flags()`: it also sets TF32, which warns on hosts without an Intel GPU.
    is_fused = torch.backends.mkldnn.set_flags(_enabled=False)[0]
    try:
        counter = FlopCounterMode(display=False, custom_mapping=extra)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            network(*arguments)
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)
        torch.backends.mkldnn.set_flags(_enabled=is_fused)
    return Cost(
        macs=round(counter.get_total_flops() / 2 / batch),
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        method=FlopsMethod.COUNTED,
        by_module=tuple(_by_module(counter.get_flop_counts(), batch)),
    )


_OPERATIONS = {
    "addmm": "linear", "mm": "linear", "bmm": "matmul", "baddbmm": "matmul",
    "convolution": "conv2d", "_softmax": "softmax", "_safe_softmax": "softmax",
    "native_layer_norm": "layer_norm",
}  # fmt: skip
"""What PyTorch executes, and the operation of a model that it mostly comes from."""


def _by_module(
    counts: Mapping[str, Mapping[object, int]], batch: int
) -> Iterator[tuple[str, str, int]]:
    """Path, operation and MACs of each module, without the modules inside it.

    Args:
        counts: FLOPs by `CLASS.path.of.module` and operation, with those of the modules inside;
            `CLASS` alone is the network, and a module that is never called, such as a
            `ModuleList`, is missing.
        batch: samples of the counted call.
    """
    total = {path.partition(".")[2]: ops for path, ops in counts.items() if path != "Global"}
    own = {path: Counter(ops) for path, ops in total.items()}
    for path, ops in total.items():
        if path:
            own[_parent(path, total)].subtract(ops)
    for path, flops in sorted(own.items()):
        macs: Counter[str] = Counter()
        for operation, count in flops.items():
            name = str(operation).rpartition(".")[2]
            macs[_OPERATIONS.get(name, name)] += count
        for name, count in sorted(macs.items()):
            if count > 0:
                yield path, name, round(count / 2 / batch)


def _parent(path: str, known: Container[str]) -> str:
    """The nearest module around a module that was called; in the end the network itself."""
    while path:
        path = path.rpartition(".")[0]
        if path in known:
            break
    return path


def stated_cost(card: ModelCard, counted: Cost | None, workload: Workload = IMAGE) -> Cost:
    """The card's figures where stated, otherwise the counted ones.

    MACs that are neither stated nor counted stay `None`, and figures that need them exclude the
    model. They are not guessed from the number of parameters: for a convolutional network that
    guess is ten to a hundred times too low. Only for a decoder of the user they are parameters x
    tokens: 21 % too low for SmolLM-135M's decode@1024, and 113 % too high for 15M's prefill@32,
    where the table of tokens counts as a product.
    Source: Kaplan et al. 2020, section 2.1 (2 N FLOPs for each token).
    """
    parameters = card.parameters
    if parameters is None and counted is not None:
        parameters = counted.parameters
    is_training = workload.kind is WorkloadKind.TRAIN
    if card.macs is not None and not is_training:  # a card states the MACs of an inference
        return Cost(macs=card.macs, parameters=parameters, method=FlopsMethod.FORMULA)
    if counted is not None and counted.macs is not None:
        return replace(counted, parameters=parameters)
    tokens = workload.tokens_per_sample(1)
    is_decoder = workload.kind in DECODER_WORKLOADS and card.source is Source.FILE
    if is_decoder and parameters is not None and tokens is not None:
        return Cost(macs=parameters * tokens, parameters=parameters, method=FlopsMethod.PARAMETERS)
    return Cost(macs=None, parameters=parameters, method=None)


def _backward_convolution(
    output: tuple[int, ...],
    inputs: tuple[int, ...],
    weights: tuple[int, ...],
    _bias: object,
    _stride: object,
    _padding: object,
    _dilation: object,
    is_transposed: bool,
    _output_padding: object,
    _groups: int,
    wanted: Sequence[bool],
    **_: object,
) -> int:
    """As much as the convolution itself for each wanted gradient, of the inputs and of the weights.

    PyTorch's own formula takes a convolution with groups for one without.
    """
    places = inputs if is_transposed else output
    return 2 * math.prod(places) * math.prod(weights[1:]) * sum(wanted[:2])
