"""Builds a network from its card; the only module that imports network definitions."""

import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fleetrank.foundation.errors import did_you_mean, failing_as, is_out_of_memory
from fleetrank.foundation.inputs import IMAGE, ModelInput, Workload
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
OWN_ENTRY_PREFIX = "fleetrank.models.networks.weights:"
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
    from fleetrank.models.networks.decoder import Decoder, Encoder, SegmentReader

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


# The inputs that a network is calibrated, counted, exported and verified with.
#
# Seeded inputs are the same numbers on every machine.

CASES = 16
"""Number of inputs that an artifact is verified with."""
INPUT_SEED = 20_180_601

Array = npt.NDArray[np.generic]
Arguments = tuple["torch.Tensor", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Arguments of a network for each purpose.

    Attributes:
        fit: calls that calibrate seeded weights.
        probe: one call that shows the scale of the output.
        counted: one call, whose cost counts for `counted_batch` samples.
        calls: calls whose outputs are the reference for verification.
        traced: the call that is exported, with exactly these shapes.
        stored: one array for each input, with the cases of `calls` along the first axis.
        has_whole_cases: each case of `stored` is a whole input; otherwise it is one image, and
            images are put together to a batch.
    """

    fit: tuple[Arguments, ...]
    probe: Arguments
    counted: Arguments
    counted_batch: int
    calls: tuple[Arguments, ...]
    traced: Arguments
    stored: tuple[Array, ...]
    has_whole_cases: bool


def image_examples(size: int, batch: int, seed: int = INPUT_SEED) -> Examples:
    """Images of height and width `size`; at least 16, and a multiple of the batch."""
    n_cases = batch * -(-CASES // batch)
    images = seeded_images(n_cases, size, seed)
    # The same images as in verification, so that they match the fitted statistics.
    fitted = images[:CASES]
    return Examples(
        fit=((fitted,),),
        probe=(fitted[:4],),
        counted=(images[:1],),
        counted_batch=1,
        # Runs with the same batch size, since a network may behave differently for another size.
        calls=tuple((part,) for part in images.split(batch)),
        # A copy, because torch.export would store the whole tensor behind a slice.
        traced=(images[:batch].clone(),),
        stored=(images.numpy(),),
        has_whole_cases=False,
    )


def stated_examples(
    inputs: Sequence[ModelInput], batch: int, *, cases: int = CASES, seed: int = INPUT_SEED
) -> Examples:
    """Seeded values for the inputs that a card states, `cases` times.

    Raises:
        ExportError: a file with values cannot be read, or has another shape or type.
    """
    rng = np.random.default_rng(seed)
    return whole_examples([_cases(one, rng, cases) for one in inputs], batch)


def given_examples(tensors: Sequence["torch.Tensor"], batch: int) -> Examples:
    """The tensors that an entry point returned; they are the only case.

    Raises:
        ExportError: they are for another batch.
    """
    if batch > 1 and any(tensor.ndim == 0 or len(tensor) != batch for tensor in tensors):
        raise ExportError(
            f"the example inputs are for another batch than {batch}",
            "state [[inputs]] with an axis 'batch' in the card, or measure at batch 1",
        )
    return whole_examples([tensor.detach().numpy()[None] for tensor in tensors], batch)


def whole_examples(stored: Sequence[Array], batch: int) -> Examples:
    """Examples of whole cases: an array of shape (cases, ...) for each input."""
    import torch

    # Copies: PyTorch warns about read-only memory, and exports a view with its base.
    calls = tuple(
        tuple(torch.from_numpy(np.array(array[case])) for array in stored)
        for case in range(len(stored[0]) if stored else 0)
    )
    return Examples(
        fit=calls,
        probe=calls[0],
        counted=calls[0],
        counted_batch=batch,
        calls=calls,
        traced=calls[0],
        stored=tuple(stored),
        has_whole_cases=True,
    )


def _cases(one: ModelInput, rng: np.random.Generator, cases: int) -> Array:
    """Values of shape (cases, *shape)."""
    values, dtype, shape = one.values, np.dtype(one.dtype), (cases, *one.shape)
    if values.path is not None:
        return np.repeat(_read(one, Path(values.path))[None], cases, axis=0)
    if isinstance(values.counts_to, int):
        counted = np.arange(values.counts_to - one.shape[-1], values.counts_to, dtype=dtype)
        return np.broadcast_to(counted, shape).copy()
    if dtype.kind == "f" and values.low is None:
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    low, high = values.low, values.high
    if low is None or high is None:
        info = np.iinfo(dtype) if dtype.itemsize == 1 and dtype.kind in "iu" else None
        low, high = (0, 1) if info is None else (info.min, info.max)
    if dtype.kind == "f":
        return rng.uniform(low, high, shape).astype(dtype)
    return rng.integers(int(low), int(high), shape, endpoint=True).astype(dtype)


def _read(one: ModelInput, path: Path) -> Array:
    message = f"the values of input {one.name!r} cannot be read"
    with failing_as(ExportError, message, "save them with numpy.save, as one array"):
        found: Array = np.load(path, allow_pickle=False)[...]  # an archive is not an array
    if found.shape != one.shape or found.dtype != np.dtype(one.dtype):
        raise ExportError(
            f"the values of input {one.name!r} in {path} have shape {found.shape} and type "
            f"{found.dtype}, not {one.shape} and {one.dtype}",
            "save an array of the stated shape and type, or correct the card",
        )
    return found


def seeded_images(count: int, size: int, seed: int = INPUT_SEED) -> "torch.Tensor":
    """Standard normal images of shape (count, 3, size, size), as normalised photographs are."""
    import torch

    # NumPy's generator, not torch's, because NumPy guarantees its stream across versions.
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((count, 3, size, size), dtype=np.float32)
    return torch.from_numpy(values)
