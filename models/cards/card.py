"""Types that describe a network, its weights and its exported file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fleetrank.foundation.vocabulary import (
    RUNTIME_OF_FORMAT,
    Family,
    FlopsMethod,
    Format,
    WeightsKind,
)

_EXPORT_RECIPE = 1
"""Increase it when exporters or seeded weights change their output; old files no longer match."""


class Source(StrEnum):
    """The source of a network."""

    TORCHVISION = "torchvision"
    TIMM = "timm"
    ENTRY_POINT = "entry_point"
    """`package.module:function` that returns a `torch.nn.Module`; the user's code, needs trust."""
    FILE = "file"
    """A file the user exported: `.onnx`, `.tflite`, `.pt2`, `.pte`, `.keras`, SavedModel folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The description of one network.

    Attributes:
        entry: the library's own name (`resnet18`), `package.module:function`, or a file path
            (absolute after loading a card).
        input_size: height and width in pixels of the RGB input; `None` for a file whose signature
            contains it.
        weights_tag: the exact pretrained tag that `accuracy_top1` belongs to.
        accuracy_top1: ImageNet top-1 in per cent; `None` if unknown.
        accuracy_source: where the accuracy is published; `None` exactly if it is unknown.
        has_attention: attention models are compared with CNNs in the FLOPs-shift test.
        macs: multiply-accumulates of one inference; `None` means that the export counts them.
        parameters: number of parameters; `None` means that the export counts them.
        import_folder: added to the exporting child's import path for an entry point (the folder
            above `cards/`); not part of the card's identity.
    """

    name: str
    family: Family
    source: Source
    entry: str
    input_size: int | None = 224
    weights_tag: str | None = None
    accuracy_top1: float | None = None
    accuracy_source: str | None = None
    has_attention: bool = False
    macs: int | None = None
    parameters: int | None = None
    import_folder: str | None = None

    def __hash__(self) -> int:
        # Used several times for each repeat; hashing thirteen fields each time would slow a sweep.
        return hash(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCard:
    """A card together with the identity of its content, read once by `identity.resolve`.

    Attributes:
        sha256: equal on every machine; covers the card and the bytes of the files it names.
    """

    card: ModelCard
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The exact weights of a model.

    Attributes:
        seed: random seed of seeded weights.
        checkpoint_path: path of a local state dict; only with `checkpoint`.
        checkpoint_sha256: identity of that file; part of the cell key.
    """

    kind: WeightsKind = WeightsKind.SEEDED
    seed: int = 0
    checkpoint_path: str | None = None
    checkpoint_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The arithmetic cost of one inference at batch 1; `None` if it is unknown."""

    macs: int | None
    parameters: int | None
    method: FlopsMethod | None

    @property
    def flops(self) -> int | None:
        """2 x MACs, the convention used here."""
        return None if self.macs is None else 2 * self.macs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """One file to be exported; equal requests share one entry of the artifact cache."""

    model: ResolvedCard
    weights: Weights
    format: Format
    precision: str = "fp32"
    batch: int = 1

    @property
    def card(self) -> ModelCard:
        """The card of the model."""
        return self.model.card

    @property
    def runtime(self) -> str:
        """The runtime that executes the requested file."""
        return RUNTIME_OF_FORMAT[self.format]

    @property
    def key(self) -> str:
        """The key in the artifact cache, part of the cell key; equal on every machine."""
        parts = (
            self.model.sha256,
            weights_id(self.card, self.weights),
            self.format,
            self.precision,
            self.batch,
            _EXPORT_RECIPE,
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedExport:
    """A file just exported, not yet verified and not yet in the cache.

    Attributes:
        path: self-contained file in the staging folder.
        versions: (name, version) of every package used by the export, sorted.
        inputs_path: `.npz` of seeded inputs, `input_0` of shape (n_cases, 3, height, width);
            n_cases is 16, or the next multiple of the batch.
        reference_path: `.npz` of the PyTorch outputs, `output_0`, ... of shape (n_cases, ...).
            Both are `None` without a PyTorch original to compare with (a user's file).
    """

    path: Path
    format: Format
    cost: Cost
    versions: tuple[tuple[str, str], ...]
    inputs_path: Path | None = None
    reference_path: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An exported file in the cache.

    Attributes:
        path: absolute; the file's name is its sha256.
        versions: (name, version) of every package used by the export, sorted.
        max_relative_error: max|a-b| / max|a| against the PyTorch output over 16 seeded inputs;
            `None` if there was no PyTorch output to compare with (a user's file).
        is_trusted: true if this workspace exported the file, false for a user's file.
    """

    path: str
    sha256: str
    size_bytes: int
    format: Format
    cost: Cost
    versions: tuple[tuple[str, str], ...]
    max_relative_error: float | None
    is_trusted: bool

    def __hash__(self) -> int:
        # Cached for the same reason as for a card.
        return hash(self.sha256)


FORMATS_OF_SUFFIX: Mapping[str, Format] = {
    **{f".{format_}": format_ for format_ in Format},
    ".keras": Format.TFLITE,
    ".h5": Format.TFLITE,
}
"""A user's file runs only in its own runtime; Keras files are converted by TensorFlow."""


def external_data_names(path: Path) -> tuple[str, str]:
    """Names that PyTorch and onnx give to external data; other files do not affect the identity."""
    return f"{path.name}.data", f"{path.name}_data"


def formats_of(card: ModelCard) -> tuple[Format, ...]:
    """The formats that a network can be exported to: all, or only that of the user's file."""
    if card.source is not Source.FILE:
        return tuple(Format)
    suffix = Path(card.entry).suffix.lower()
    # A SavedModel is a folder and has no suffix.
    return (FORMATS_OF_SUFFIX.get(suffix, Format.TFLITE),)


def weights_id(card: ModelCard, weights: Weights) -> str:
    """A short readable name of these exact weights, such as `seeded-0`; part of the cell key."""
    if card.source is Source.FILE:
        return str(WeightsKind.EMBEDDED)
    if weights.kind is WeightsKind.SEEDED:
        return f"{weights.kind}-{weights.seed}"
    if weights.kind is WeightsKind.PRETRAINED:
        return f"{weights.kind}-{card.weights_tag}"
    return f"{weights.kind}-{weights.checkpoint_sha256}"
