"""Types that describe a network, its weights and its exported file."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from fleetrank.foundation.formats import outside_format
from fleetrank.foundation.inputs import Axes, ModelInput
from fleetrank.foundation.onnx_file import external_data_of
from fleetrank.foundation.user_file import NO_OTHER_KEYS, Checked, Key
from fleetrank.foundation.vocabulary import (
    CALIBRATED,
    Family,
    FlopsMethod,
    Format,
    Precision,
    WeightsKind,
)
from fleetrank.foundation.workload import IMAGE, TOKENS, Workload, WorkloadKind
from fleetrank.models.cards.inputs import AxisName, AxisSize, CardInput, sized, valid_input
from fleetrank.models.cards.language import (
    DECODER_WORKLOADS,
    ENCODER_WORKLOADS,
    LanguageShape,
    segment_inputs,
    valid_shape,
)

_EXPORT_RECIPE = 1
"""Increase it when exporters or seeded weights change their output; old files no longer match."""
N_CALIBRATION = 16
"""Seeded inputs that give a recipe the ranges of values."""
RECIPES: Mapping[tuple[Format, str], str] = {
    (Format.ONNX, Precision.INT8): "qdq-u8s8/1",
    (Format.TFLITE, Precision.INT8): "static-wi8-ai8/1",
    (Format.PTE, Precision.INT8): "xnnpack-pt2e/1",
    (Format.ONNX, Precision.INT8_S8S8): "qdq-s8s8/1",
    (Format.ONNX, Precision.INT8_DYNAMIC): "dynamic-matmul/1",
    (Format.TFLITE, Precision.INT8_DYNAMIC): "dynamic-wi8/1",
    (Format.TFLITE, Precision.W8A16): "static-wi8-ai16/1",
}
"""Name and version of what writes a network with integers; raise the version if its files change.

Of networks of images and others that take numbers:

- `qdq-u8s8`: ONNX Runtime's static quantisation, QDQ, unsigned activations, signed weights by
  channel. With signed activations ONNX Runtime 1.31 leaves 15 of MobileNetV2's 52 convolutions in
  float on x86 (11.7 ms and not 3.5, one thread; fp32 5.9).
- `static-wi8-ai8`: AI Edge Quantizer's static recipe, activations by tensor, weights by channel.
- `xnnpack-pt2e`: ExecuTorch's XNNPACK quantizer on the exported graph, weights by channel.
- `qdq-s8s8`, `static-wi8-ai16`: the first two with signed activations, and with 16-bit ones.
- `dynamic-matmul`: ONNX Runtime's dynamic quantisation of products of matrices, which leaves
  convolutions in float: it has no kernel for signed weights. `dynamic-wi8`: as below.
"""
LANGUAGE_RECIPES: Mapping[tuple[Format, str], str] = {
    (Format.ONNX, Precision.INT8): "matmul-nbits8/1",
    (Format.ONNX, Precision.INT4): "matmul-nbits4/1",
    (Format.ONNX, Precision.INT8_DYNAMIC): "dynamic-matmul/1",
    (Format.TFLITE, Precision.INT8): "dynamic-wi8/1",
    (Format.TFLITE, Precision.INT4): "dynamic-wi4/1",
    (Format.PTE, Precision.INT8): "8da8w/2",
    (Format.PTE, Precision.INT4): "8da4w/2",
}
"""The same of language models: weights of products only, so nothing is calibrated.

- `matmul-nbits`: ONNX Runtime's MatMulNBits, blocks of 32 weights, products with 8-bit activations.
- `dynamic-wi`: AI Edge Quantizer's dynamic recipes, activations quantised while they run.
- `8da8w`, `8da4w`: torchao's dynamic 8-bit activations; 4-bit weights in groups of 32.
"""
GROUP = 32
"""Weights that share a scale; ONNX Runtime fills the last block, torchao refuses a part of one."""
SCALE_BYTES: Mapping[str, float] = {
    "matmul-nbits8/1": (4 + 1) / GROUP,
    "matmul-nbits4/1": (4 + 0.5) / GROUP,
    "8da4w/2": 2 / GROUP,
}
"""Of a weight in blocks: its part of the scale and, of ONNX Runtime, of the zero point.

ONNX Runtime stores scales in fp32, XNNPACK in bf16. The other recipes have one scale for a whole
row of a matrix: less than 2 % from 288 columns on, which is not counted.
"""


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
class CardKeys:
    """The keys of a card in `cards/*.toml`."""

    __pydantic_config__ = NO_OTHER_KEYS

    name: Annotated[
        str,
        Key(
            "name used in sweeps (default: the file name without .toml)",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$",
        ),
    ]
    family: Annotated[Family, Key("kind of architecture")] = Family.OTHER
    source: Annotated[Source, Key("where the network is defined")]
    entry: Annotated[
        str,
        Key(
            "name in torchvision or timm, a file relative to the card, or package.module:function; "
            "not needed with source 'language'",
            pattern=".",
        ),
    ]
    input_size: Annotated[
        int | None,
        Key(
            "height and width of the RGB input; not needed if the file contains them",
            ge=1,
            le=4096,
        ),
    ] = 224
    is_fixed_size: Annotated[bool, Key("the network takes images of input_size only")] = False
    weights_tag: Annotated[
        str | None, Key("tag of the pretrained weights that the accuracy belongs to")
    ] = None
    accuracy_top1: Annotated[
        float | None, Key("ImageNet top-1 in per cent, as published", ge=0, le=100)
    ] = None
    accuracy_source: Annotated[
        str | None, Key("where it is published; required with accuracy_top1")
    ] = None
    has_attention: Annotated[bool, Key("used in the FLOPs-shift test")] = False
    macs: Annotated[
        int | None,
        Key(
            "MACs of one inference at batch 1 (default: counted on networks and ONNX graphs). For "
            "other files state them, otherwise FRM excludes the model",
            ge=1,
            lt=2**62,
        ),
    ] = None
    parameters: Annotated[
        int | None,
        Key("number of parameters (default: counted where MACs are)", ge=0, lt=2**63),
    ] = None
    precision: Annotated[
        Precision | None,
        Key(
            "numeric type of a file; required if the file does not say it itself, such as a .pte "
            "with a delegate; a sweep chooses it for networks"
        ),
    ] = None
    inputs: Annotated[
        tuple[Annotated[CardInput, Checked(valid_input)], ...],
        Key(
            "inputs of a file or entry point, in the order of its arguments; not needed for "
            "images, or if the file states all sizes"
        ),
    ] = ()
    axes: Annotated[
        Axes,
        Checked(lambda axes: tuple(sorted(axes.items())), form=dict[AxisName, AxisSize]),
        Key("default sizes of named axes, for sweeps that give none"),
    ] = ()
    workloads: Annotated[
        tuple[Annotated[WorkloadKind, Key(words=(*DECODER_WORKLOADS, *ENCODER_WORKLOADS))], ...],
        Key(
            "kinds of inferences of a file or entry point that takes tokens: prefill, decode, "
            "generate or encode; the sizes of the axes 'tokens' and 'context' follow from the "
            "workload of the sweep"
        ),
    ] = ()
    language: Annotated[
        Annotated[LanguageShape, Checked(valid_shape)] | None,
        Key("numbers of a decoder or encoder of text; only with source 'language'"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard(CardKeys):
    """The description of one network; `None` means not known.

    Attributes:
        entry: the library's own name (`resnet18`), `package.module:function`, or a file path
            (absolute after loading a card).
        weights_tag: the exact pretrained tag that `accuracy_top1` belongs to.
        macs, parameters: `None` means that the export counts them.
        precision: of a file that cannot say what it is; `None` reads it from the file.
        inputs: empty for images of `input_size`, for a file that states its inputs, and for an
            entry point that returns them.
        axes, is_fixed_size: not part of the identity.
        workloads: empty for `image` alone.
        import_folder: added to the exporting child's import path for an entry point (the folder
            above `cards/`); not part of the card's identity.
    """

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
class Preprocessing:
    """How an image becomes an input.

    Attributes:
        crop: the central square of this share of the shorter side is resized to the input.
        mean, std: of each channel, for values from 0 to 1; one number is for all channels.
    """

    crop: float = 0.875
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)


DEFAULT_CASES = 256
"""Of the data of a calibration; NumPy is not needed to know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Data of the user that give a recipe the ranges of values.

    Attributes:
        path: a folder of images, or a `.npy` file of shape (cases, *sizes of one case).
        n: cases used, at most.
        sha256: of the data and, of images, of how they become inputs.
    """

    path: str
    n: int
    sha256: str
    preprocessing: Preprocessing = Preprocessing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The exact weights of a model.

    Attributes:
        seed: of seeded weights.
        checkpoint_path: path of a local state dict; only with `checkpoint`.
        checkpoint_sha256: identity of that file; part of the cell key.
        calibration: for integers made of these weights; `None` takes seeded inputs.
    """

    kind: WeightsKind = WeightsKind.SEEDED
    seed: int = 0
    checkpoint_path: str | None = None
    checkpoint_sha256: str | None = None
    calibration: Calibration | None = None


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
    def recipe(self) -> str | None:
        """What writes the network with integers, and from what; `None` if nothing does."""
        if self.card.source is Source.FILE:
            return None
        is_text = self.card.language is not None
        recipe = (LANGUAGE_RECIPES if is_text else RECIPES).get((self.format, self.precision))
        if recipe is None or is_text or self.precision not in CALIBRATED:
            return recipe
        data = self.weights.calibration
        inputs = f"{N_CALIBRATION} seeded" if data is None else f"{data.n} of {data.sha256[:16]}"
        return f"{recipe}, {inputs}"

    @property
    def key(self) -> str:
        """The key in the artifact cache, part of the cell key; equal on every machine."""
        parts = (
            self.model.sha256,
            weights_id(self.card, self.weights),
            self.format,
            self.precision,
            self.batch,
            self.axes,
            str(self.workload),
            _EXPORT_RECIPE,
            *filter(None, (self.recipe,)),
        )
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
        reference_path: `.npz` of the PyTorch outputs, `output_0`, ... of shape (n_cases, ...).
            Both are `None` without a PyTorch original to compare with (a user's file).
        check_path: both in one `.npz`, for the devices; `None` if no device checks the file.
    """

    path: Path
    format: Format
    cost: Cost
    versions: tuple[tuple[str, str], ...]
    inputs_path: Path | None = None
    reference_path: Path | None = None
    weights_path: Path | None = None
    check_path: Path | None = None


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
        snr_db, top1_agreement: of the same outputs, as in `Comparison`.
        is_trusted: true if this workspace exported the file, false for a user's file.
        weights_sha256: of the file `SHA256.data` beside it; `None` if the weights are inside.
        border: of its inputs and outputs, as `StoredTypes` says; `None` if it is not known.
        border_scales: of its integers, as `StoredTypes` says.
        check_sha256: of `SHA256.npz` beside it: inputs, and what the network gave for them.
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
    check_sha256: str | None = None
    snr_db: float | None = None
    top1_agreement: float | None = None
    border: str | None = None
    border_scales: str | None = None

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
    def check_path(self) -> str | None:
        """What each device compares the file with; `None` if it need not."""
        if self.check_sha256 is None:
            return None
        return str(Path(self.path).with_name(f"{self.check_sha256}.npz"))

    @property
    def has_file(self) -> bool:
        """Whether there is a file to open."""
        return self.path != ""


FORMATS_OF_SUFFIX: Mapping[str, Format] = {
    **{f".{format_}": format_ for format_ in Format},
    ".keras": Format.TFLITE,
    ".h5": Format.TFLITE,
}
"""A user's file runs only in its own runtime; Keras files are converted by TensorFlow. Beside
these are the formats of other packages."""


def format_of_suffix(suffix: str) -> Format | None:
    """The format in which a file with this suffix runs; `None` if no runtime here takes it."""
    return FORMATS_OF_SUFFIX.get(suffix) or outside_format(suffix)


def external_data(path: Path) -> dict[str, Path]:
    """The files in which an ONNX file says that its weights lie, by the name that it gives.

    Only those in its folder, or in one inside it: a model that names others, or has a link to
    them, is refused later.

    Raises:
        OSError: the file cannot be read.
    """
    if path.suffix.lower() != f".{Format.ONNX}":
        return {}
    folder = path.absolute().parent
    names = [name for name in external_data_of(path) if name and "\0" not in name]
    found = {name: Path(os.path.normpath(folder / name)) for name in names}
    return {name: file for name, file in found.items() if folder in file.parents}


def own_format(card: ModelCard) -> Format | None:
    """The format of a user's file as it is; `None` for a network, or a file to be converted."""
    suffix = Path(card.entry).suffix.lower() if card.source is Source.FILE else ""
    found = format_of_suffix(suffix)
    return found if suffix == f".{found}" else None


def formats_of(card: ModelCard) -> tuple[Format, ...]:
    """The formats that a network can be exported to: all, or only that of the user's file."""
    if card.source is not Source.FILE:
        return tuple(Format)
    suffix = Path(card.entry).suffix.lower()
    # A SavedModel is a folder and has no suffix.
    return (format_of_suffix(suffix) or Format.TFLITE,)


def weights_id(card: ModelCard, weights: Weights) -> str:
    """A short readable name of these exact weights, such as `seeded-0`; part of the cell key."""
    if card.source is Source.FILE:
        return str(WeightsKind.EMBEDDED)
    if weights.kind is WeightsKind.SEEDED:
        return f"{weights.kind}-{weights.seed}"
    if weights.kind is WeightsKind.PRETRAINED:
        return f"{weights.kind}-{card.weights_tag}"
    return f"{weights.kind}-{weights.checkpoint_sha256}"
