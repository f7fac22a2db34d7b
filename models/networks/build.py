"""Builds a network from its card; the only module that imports network definitions."""

import importlib
import sys
from typing import TYPE_CHECKING

from fleetrank.foundation.errors import is_out_of_memory
from fleetrank.foundation.wording import nearest
from fleetrank.models.cards.card import ModelCard, Source
from fleetrank.models.errors import ExportError, UntrustedError

if TYPE_CHECKING:
    import torch


_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_kept: list[object] = []
"""Kept alive, because a Library's operators vanish when it is garbage-collected."""


def import_torchvision() -> None:
    """Imports torchvision and declares its two detection operators if they are missing.

    Its wheel is built for CUDA. With a CPU build of torch the operators do not load, and the
    import fails at `register_fake("torchvision::nms")`. Classification does not need them.
    """
    import torch

    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    else:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    _kept.append(library)
    import torchvision  # noqa: F401


OWN_PACKAGE = "fleetrank"
OWN_ENTRY_PREFIX = "fleetrank.models.networks.primer:"
"""Fleetrank's own tiny networks are entry points that need no trust."""


def build_network(card: ModelCard, *, is_pretrained: bool, is_trusted: bool) -> "torch.nn.Module":
    """The network in evaluation mode, with pretrained or newly initialised weights.

    Raises:
        ExportError: the network or weights are unknown, or the entry point fails.
        UntrustedError: the network is an entry point and the user did not give `--trust`.
    """
    if card.source is Source.TORCHVISION:
        network = _from_torchvision(card, is_pretrained=is_pretrained)
    elif card.source is Source.TIMM:
        network = _from_timm(card, is_pretrained=is_pretrained)
    elif card.source is Source.ENTRY_POINT:
        network = _from_entry_point(card, is_trusted=is_trusted)
    else:
        raise ExportError(f"{card.name} is a file and cannot be rebuilt", "use the file as it is")
    return network.eval()


def _from_torchvision(card: ModelCard, *, is_pretrained: bool) -> "torch.nn.Module":
    import_torchvision()
    import torchvision

    if card.entry not in torchvision.models.list_models():
        raise _unknown_entry(card, torchvision.models.list_models())
    options: dict[str, object] = {}
    if card.entry == "inception_v3":
        # The second classifier is for training only; init_weights is its slow SciPy initialiser.
        options = {"aux_logits": False, "init_weights": False}
    weights = card.weights_tag if is_pretrained else None
    network: torch.nn.Module = torchvision.models.get_model(card.entry, weights=weights, **options)
    return network


def _from_timm(card: ModelCard, *, is_pretrained: bool) -> "torch.nn.Module":
    import_torchvision()
    import timm

    if not timm.is_model(card.entry):
        raise _unknown_entry(card, timm.list_models())
    tag = f".{card.weights_tag}" if is_pretrained and card.weights_tag else ""
    network: torch.nn.Module = timm.create_model(card.entry + tag, pretrained=is_pretrained)
    return network


def _from_entry_point(card: ModelCard, *, is_trusted: bool) -> "torch.nn.Module":
    import torch

    module_name, _, function_name = card.entry.partition(":")
    if not card.entry.startswith(OWN_ENTRY_PREFIX):
        _check_entry_point(card, module_name, is_trusted=is_trusted)
        if card.import_folder is not None and card.import_folder not in sys.path:
            # Appended at the end, so that a user's folder cannot shadow a library.
            sys.path.append(card.import_folder)
    try:
        network = getattr(importlib.import_module(module_name), function_name)()
    except Exception as error:  # any exception of the user's code is shown as the reason
        if is_out_of_memory(error):
            raise
        raise ExportError(
            f"entry point {card.entry} failed: {type(error).__name__}: {error}",
            "it must be importable from the workspace folder and callable without arguments",
        ) from error
    if not isinstance(network, torch.nn.Module):
        raise ExportError(
            f"entry point {card.entry} returned {type(network).__name__}",
            "return a torch.nn.Module",
        )
    return network


def _check_entry_point(card: ModelCard, module_name: str, *, is_trusted: bool) -> None:
    if not is_trusted:
        raise UntrustedError(
            f"model {card.name} is the entry point {card.entry}: exporting it runs that code",
            "add --trust if you trust it",
        )
    package = module_name.partition(".")[0]
    if package == OWN_PACKAGE:
        raise ExportError(
            f"entry point {card.entry}: {package!r} is the import name of this program",
            f"rename the folder {package}/ of the workspace",
        )


def _unknown_entry(card: ModelCard, known: list[str]) -> ExportError:
    guess = nearest(card.entry, known)
    return ExportError(
        f"{card.source} has no network {card.entry!r} (model {card.name})",
        f"did you mean {guess!r}?" if guess else "correct 'entry' in its card",
    )
