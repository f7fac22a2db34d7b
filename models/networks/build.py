"""Builds a network from its card; the only module that imports network definitions."""

import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetrank.foundation.errors import is_out_of_memory
from fleetrank.foundation.wording import did_you_mean
from fleetrank.foundation.workload import IMAGE, Workload
from fleetrank.models.cards.card import ModelCard, Source, own_format
from fleetrank.models.cards.language import LanguageShape
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A network, and the example inputs that its entry point returned.

    Attributes:
        examples: in the order of the network's arguments; empty if it returned none.
    """

    network: "torch.nn.Module"
    examples: tuple["torch.Tensor", ...] = ()


def check_trust(card: ModelCard, *, is_trusted: bool) -> None:
    """Checks that the user allowed the code that comes with a model, if any does.

    Raises:
        UntrustedError: names the model.
    """
    if is_trusted or card.entry.startswith(OWN_ENTRY_PREFIX):
        return
    remedy = "add `trust=true` if you trust it"
    if card.source is Source.ENTRY_POINT:
        raise UntrustedError(
            f"model {card.name} is the entry point {card.entry}: exporting it runs that code",
            remedy,
        )
    if card.source is Source.FILE and own_format(card) is None:
        raise UntrustedError(
            f"{card.entry} is a Keras model or SavedModel: converting it can run code from it",
            remedy,
        )


def build_network(
    card: ModelCard, *, is_pretrained: bool, is_trusted: bool, workload: Workload = IMAGE
) -> Built:
    """The network in evaluation mode, with pretrained or newly initialised weights.

    A decoder that reads segments of a long text has a memory beside its usual weights.

    Raises:
        ExportError: the network or weights are unknown, or the entry point fails.
        UntrustedError: the network is an entry point and the user did not give `--trust`.
    """
    if card.source is Source.TORCHVISION:
        built = Built(network=_from_torchvision(card, is_pretrained=is_pretrained))
    elif card.source is Source.TIMM:
        built = Built(network=_from_timm(card, is_pretrained=is_pretrained))
    elif card.source is Source.ENTRY_POINT:
        built = _from_entry_point(card, is_trusted=is_trusted)
    elif card.language is not None:
        built = Built(network=_from_shape(card.language, workload))
    else:
        raise ExportError(f"{card.name} is a file and cannot be rebuilt", "use the file as it is")
    built.network.eval()
    return built


def _from_shape(shape: LanguageShape, workload: Workload) -> "torch.nn.Module":
    from fleetrank.models.networks.decoder import Decoder
    from fleetrank.models.networks.encoder import Encoder
    from fleetrank.models.networks.segment_reader import SegmentReader

    if workload.memories is not None:
        return SegmentReader(shape, workload)
    return Encoder(shape) if shape.is_encoder else Decoder(shape)


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


def _from_entry_point(card: ModelCard, *, is_trusted: bool) -> Built:
    import torch

    module_name, _, function_name = card.entry.partition(":")
    check_trust(card, is_trusted=is_trusted)
    if not card.entry.startswith(OWN_ENTRY_PREFIX):
        _check_entry_point(card, module_name)
        if card.import_folder is not None and card.import_folder not in sys.path:
            # Appended at the end, so that a user's folder cannot shadow a library.
            sys.path.append(card.import_folder)
    try:
        returned = getattr(importlib.import_module(module_name), function_name)()
    except Exception as error:  # any exception of the user's code is shown as the reason
        if is_out_of_memory(error):
            raise
        raise ExportError(
            f"entry point {card.entry} failed: {type(error).__name__}: {error}",
            "it must be importable from the workspace folder and callable without arguments",
        ) from error
    network, examples = (
        returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, ())
    )
    if not isinstance(network, torch.nn.Module):
        raise ExportError(
            f"entry point {card.entry} returned {type(returned).__name__}",
            "return a torch.nn.Module, or a pair of it and its example inputs",
        )
    return Built(network=network, examples=_in_order(network, examples, card.entry))


def _in_order(
    network: "torch.nn.Module", examples: object, entry: str
) -> tuple["torch.Tensor", ...]:
    """Example inputs in the order of the arguments of `forward`.

    Raises:
        ExportError: they are not tensors, or their names are not those of arguments.
    """
    import torch

    found: Sequence[object] = ()
    if isinstance(examples, torch.Tensor):
        found = (examples,)
    elif isinstance(examples, Mapping):
        names = [name for name in inspect.signature(network.forward).parameters if name in examples]
        found = [examples[name] for name in names] if len(names) == len(examples) else (None,)
    elif isinstance(examples, tuple | list):
        found = examples
    tensors = tuple(one for one in found if isinstance(one, torch.Tensor))
    if len(tensors) != len(found) or (not found and examples != ()):
        raise ExportError(
            f"the example inputs of entry point {entry} are not tensors for forward()",
            "return a tensor, a tuple of tensors, or a dict from argument to tensor",
        )
    return tensors


def _check_entry_point(card: ModelCard, module_name: str) -> None:
    package = module_name.partition(".")[0]
    if package == OWN_PACKAGE:
        raise ExportError(
            f"entry point {card.entry}: {package!r} is the import name of this program",
            f"rename the folder {package}/ of the workspace",
        )


def _unknown_entry(card: ModelCard, known: list[str]) -> ExportError:
    return ExportError(
        f"{card.source} has no network {card.entry!r} (model {card.name})",
        did_you_mean(card.entry, known, "correct 'entry' in its card"),
    )
