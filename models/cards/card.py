"""Types that describe a network, its weights and its exported file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fleetrank.foundation.inputs.model_input import Axes, ModelInput
from fleetrank.foundation.inputs.workload import IMAGE, TOKENS, Workload, WorkloadKind
from fleetrank.foundation.vocabulary import Family, FlopsMethod, Format, Precision, WeightsKind
from fleetrank.models.cards.inputs import CardInput, sized
from fleetrank.models.cards.language import LanguageShape, segment_inputs

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
    LANGUAGE = "language"
    """The built-in decoder or encoder of text, by the numbers of its card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The description of one network.

    Attributes:
        entry: the library's own name (`resnet18`), `package.module:function`, or a file path
            (absolute after loading a card).
        input_size: height and width of the RGB input; `None` if a file's signature contains it.
        is_fixed_size: the network takes no other size; not part of the identity.
        weights_tag: the exact pretrained tag that `accuracy_top1` belongs to.
        accuracy_top1: ImageNet top-1 in per cent; `None` if unknown.
        accuracy_source: where the accuracy is published; `None` exactly if it is unknown.
        has_attention: attention models are compared with CNNs in the FLOPs-shift test.
        macs: multiply-accumulates of one inference; `None` means that the export counts them.
        parameters: number of parameters; `None` means that the export counts them.
        precision: of a file that cannot say what it is; `None` reads it from the file. A network
            has none: the sweep chooses it.
        inputs: in the order of the network's arguments; empty for images of `input_size`, for a
            file that states its inputs, and for an entry point that returns them.
        axes: default sizes of named axes; a sweep may give others. Not part of the identity.
        workloads: kinds of inferences that the model answers; empty for `image` alone.
        language: the numbers of a decoder or encoder of text; `None` for all other sources.
        import_folder: added to the exporting child's import path for an entry point (the folder
            above `cards/`); not part of the card's identity.
    """

    name: str
    family: Family
    source: Source
    entry: str
    input_size: int | None = 224
    is_fixed_size: bool = False
    weights_tag: str | None = None
    accuracy_top1: float | None = None
    accuracy_source: str | None = None
    has_attention: bool = False
    macs: int | None = None
    parameters: int | None = None
    precision: Precision | None = None
    inputs: tuple[CardInput, ...] = ()
    axes: Axes = ()
    workloads: tuple[WorkloadKind, ...] = ()
    language: LanguageShape | None = None
    import_folder: str | None = None

    def __hash__(self) -> int:
        # Used several times for each repeat; hashing all fields each time would slow a sweep.
        return hash(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCard:
    """A card together with the identity of its content, read once by `identity.resolve`.

    Attributes:
        sha256: equal on every machine; covers the card and the bytes of the files it names.
        precision: of a user's file, as the file says or else its card; `None` if neither says it,
            and for a network, whose precision the sweep chooses.
        value_hashes: (path, sha256) of the files with values of inputs.
        sized_from: the card as written, if `card` is it at another size of images.
    """

    card: ModelCard
    sha256: str
    precision: Precision | None = None
    value_hashes: tuple[tuple[str, str], ...] = ()
    sized_from: ModelCard | None = None

    def sized_inputs(
        self, axes: Axes, batch: int, workload: Workload = IMAGE
    ) -> tuple[ModelInput, ...]:
        """The inputs that a workload needs, with all sizes; a step of training takes no cache.

        Raises:
            CardError: an axis has no size.
        """
        stated, shape = self.card.inputs, self.card.language
        if workload.kind is WorkloadKind.TRAIN:
            stated = tuple(one for one in stated if one.name == TOKENS)
        elif shape is not None and workload.memories is not None:
            stated = segment_inputs(shape, workload)
        return sized(stated, axes + workload.axes, batch, dict(self.value_hashes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The exact weights of a model.

    Attributes:
        seed: of seeded weights.
        checkpoint_path: path of a local state dict; only with `checkpoint`.
        checkpoint_sha256: identity of that file; part of the cell key.
    """

    kind: WeightsKind = WeightsKind.SEEDED
    seed: int = 0
    checkpoint_path: str | None = None
    checkpoint_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The arithmetic cost of one inference at batch 1; `None` if it is unknown.

    Attributes:
        by_module: path of a module, PyTorch's name of an operation, and its MACs without modules
            inside; empty if they were not counted on a network.
    """

    macs: int | None
    parameters: int | None
    method: FlopsMethod | None
    by_module: tuple[tuple[str, str, int], ...] = ()

    @property
    def flops(self) -> int | None:
        """2 x MACs, the convention used here."""
        return None if self.macs is None else 2 * self.macs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """One file to be exported; equal requests share one entry of the artifact cache.

    Attributes:
        axes: sizes of the named axes of the card's inputs.
        workload: gives the sizes of the axes `tokens` and `context`.
    """

    model: ResolvedCard
    weights: Weights
    format: Format
    precision: str = "fp32"
    batch: int = 1
    axes: Axes = ()
    workload: Workload = IMAGE

    @property
    def inputs(self) -> tuple[ModelInput, ...]:
        """The inputs that the card states, with all sizes; empty if it states none."""
        return self.model.sized_inputs(self.axes, self.batch, self.workload)

    @property
    def card(self) -> ModelCard:
        """The card of the model."""
        return self.model.card

    @property
    def key(self) -> str:
        """The key in the artifact cache, part of the cell key; equal on every machine."""
        parts: tuple[object, ...] = (
            self.model.sha256,
            weights_id(self.card, self.weights),
            self.format,
            self.precision,
            self.batch,
            _EXPORT_RECIPE,
        )
        # Older keys have no such part, and stay as they are.
        parts += (self.axes,) if self.axes else ()
        parts += (str(self.workload),) if self.workload != IMAGE else ()
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedExport:
    """A file just exported, not yet verified and not yet in the cache.

    Attributes:
        path: in the staging folder; self-contained but for `weights_path`, `SHA256.data` beside
            it, which is `None` if the weights are inside.
        versions: (name, version) of every package used by the export, sorted.
        inputs_path: `.npz` of seeded inputs, `input_0` of shape (n_cases, 3, height, width) with
            16 cases, or a multiple of the batch; for stated inputs (n_cases, *shape of the input).
        has_whole_cases: the second form of `inputs_path`.
        reference_path: `.npz` of the PyTorch outputs, `output_0`, ... of shape (n_cases, ...).
            Both are `None` without a PyTorch original to compare with (a user's file).
    """

    path: Path
    format: Format
    cost: Cost
    versions: tuple[tuple[str, str], ...]
    inputs_path: Path | None = None
    reference_path: Path | None = None
    has_whole_cases: bool = False
    weights_path: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An exported file in the cache, or the cost of a network that no device opens as a file.

    Attributes:
        path: absolute; the file's name is its sha256. Empty without a file.
        versions: (name, version) of every package used by the export, sorted.
        size_bytes: of the file and its weights.
        max_relative_error: max|a-b| / max|a| against the PyTorch output over 16 seeded inputs, or
            over the inferences of a sequence of tokens; `None` if there was no PyTorch output to
            compare with (a user's file).
        is_trusted: true if this workspace exported the file, false for a user's file.
        weights_sha256: of the file `SHA256.data` beside it; `None` if the weights are inside.
    """

    path: str
    sha256: str
    size_bytes: int
    format: Format
    cost: Cost
    versions: tuple[tuple[str, str], ...]
    max_relative_error: float | None
    is_trusted: bool
    weights_sha256: str | None = None

    def __hash__(self) -> int:
        # Cached for the same reason as for a card.
        return hash(self.sha256)

    @property
    def weights_path(self) -> str | None:
        """The second file; `None` if the weights are inside."""
        if self.weights_sha256 is None:
            return None
        return str(Path(self.path).with_name(f"{self.weights_sha256}.data"))

    @property
    def has_file(self) -> bool:
        """Whether there is a file to open."""
        return self.path != ""


FORMATS_OF_SUFFIX: Mapping[str, Format] = {
    **{f".{format_}": format_ for format_ in Format},
    ".keras": Format.TFLITE,
    ".h5": Format.TFLITE,
}
"""A user's file runs only in its own runtime; Keras files are converted by TensorFlow."""


def external_data_names(path: Path) -> tuple[str, str]:
    """Names that PyTorch and onnx give to external data; other files do not affect the identity."""
    return f"{path.name}.data", f"{path.name}_data"


def own_format(card: ModelCard) -> Format | None:
    """The format of a user's file as it is; `None` for a network, or a file to be converted."""
    suffix = Path(card.entry).suffix.lower() if card.source is Source.FILE else ""
    return next((format_ for format_ in Format if suffix == f".{format_}"), None)


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
