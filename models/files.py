"""Checks a user's ONNX file, writes it as one file with fixed sizes and counts its MACs."""

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.files import file_sha256
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.onnx_file import StoredInput
from fleetrank.foundation.vocabulary import FlopsMethod, Format
from fleetrank.models.cards.card import Cost, ModelCard, external_data, own_format
from fleetrank.models.cards.inputs import AXIS_NAME, BATCH, LONGEST_AXIS, CardInput
from fleetrank.models.errors import CardError, ExportError
from fleetrank.models.networks.cost import ELEMENTWISE_FLOPS
from fleetrank.models.number_types import UNREADABLE, read_inputs, tflite_outputs, tflite_scales

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message

# Refuses files whose stored scales of quantised values cannot be computed with.

_SCALES_AT: Mapping[str, tuple[int, ...]] = {
    "DequantizeLinear": (1,),
    "DynamicQuantizeMatMul": (2,),
    "GatherBlockQuantized": (2,),
    "MatMulIntegerToFloat": (2, 3),
    "MatMulNBits": (2,),
    "QGemm": (1, 4),
    "QLinearAdd": (1, 4, 6),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
    "QLinearMul": (1, 4, 6),
    "QuantizeLinear": (1,),
}
"""Inputs that are scales, and never optional. Source: as in `onnx_weights`."""
_OF_BLOCKS = frozenset({"GatherBlockQuantized", "MatMulNBits"})
"""A block of zeros, such as unused tokens, has the scale 0 by the quantizer of ONNX Runtime."""


def check_onnx_scales(graph: "onnx.GraphProto", source: Path) -> None:
    """Checks the stored scales of a graph and of the graphs inside its nodes.

    Raises:
        ExportError: one is missing, NaN, infinite or zero.
    """
    from onnx import numpy_helper

    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                stored[node.output[0]] = attribute.t
            for inner in (attribute.g, *attribute.graphs):
                check_onnx_scales(inner, source)
        for place in _SCALES_AT.get(node.op_type, ()):
            name = node.input[place] if place < len(node.input) else ""
            if not name:
                first = node.input[0] if node.input else ""
                raise _bad_scale(source, f"a scale of {first!r} in {node.op_type}", "missing")
            if name in stored:
                scales = numpy_helper.to_array(stored[name]).astype(float).ravel().tolist()
                has_zeros = node.op_type in _OF_BLOCKS
                _check_scales(source, f"scale {name!r}", scales, may_have_zeros=has_zeros)


def check_tflite_scales(data: bytes, source: Path) -> None:
    """Checks the scales of the tensors that hold integers.

    Raises:
        ExportError: as above.
        struct.error, ValueError: the file is damaged.
    """
    for tensor, scales in tflite_scales(data):
        name = f"the scale of tensor {tensor!r}"
        if not scales:
            raise _bad_scale(source, name, "missing")
        _check_scales(source, name, scales)


def _check_scales(
    source: Path, name: str, scales: Sequence[float], *, may_have_zeros: bool = False
) -> None:
    if not all(map(math.isfinite, scales)):
        is_nan = any(map(math.isnan, scales))
        raise _bad_scale(source, name, "not a number" if is_nan else "infinite")
    if not any(scales) or not (all(scales) or may_have_zeros):
        raise _bad_scale(source, name, "zero")


def _bad_scale(source: Path, name: str, problem: str) -> ExportError:
    return ExportError(
        f"{source}: {name} is {problem}, so its integers mean nothing",
        "quantise the model again, with calibration data that are not all equal",
    )


# Gives the inputs of an ONNX graph the sizes that a card states.


def fix_inputs(
    model: "onnx.ModelProto",
    source: Path,
    inputs: Sequence[ModelInput],
    step_inputs: Sequence[ModelInput],
) -> None:
    """Sets every dynamic size, and forgets the sizes of other tensors that followed from it.

    A size in which the inputs of a prompt and of a step differ stays dynamic.

    Raises:
        ExportError: names, types, or sizes that the file fixes differ from the card's; or it fixes
            a size that has to be dynamic.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    found = {value.name: value for value in model.graph.input if value.name not in stored}
    stated = {one.name: one for one in inputs}
    if found.keys() != stated.keys():
        raise ExportError(
            f"{source} has the inputs {', '.join(found)}, its card states {', '.join(stated)}",
            "give each input of the file one [[inputs]] table with its name",
        )
    for one, step in zip(inputs, step_inputs, strict=True):
        _fix(found[one.name], source, one, step)
    del model.graph.value_info[:]


def _fix(value: "onnx.ValueInfoProto", source: Path, one: ModelInput, step: ModelInput) -> None:
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    dtype = type_name(tensor.elem_type)
    sizes = tuple(dim.dim_value if dim.dim_value > 0 else None for dim in dims)
    fits = len(sizes) == len(one.shape) and all(
        size in (None, wanted) for size, wanted in zip(sizes, one.shape, strict=True)
    )
    if dtype != one.dtype or not fits:
        shown = ", ".join("?" if size is None else str(size) for size in sizes)
        raise ExportError(
            f"{source}: input {one.name!r} is {dtype} of [{shown}], its card states {one.dtype} of "
            f"{list(one.shape)}",
            "correct dtype or shape in the card; where the file has ?, any size fits",
        )
    for dim, known, size, other in zip(dims, sizes, one.shape, step.shape, strict=True):
        if size == other:
            dim.dim_value = size
        elif known is not None:
            raise ExportError(
                f"{source}: input {one.name!r} is fixed to {known} tokens, and one file has to "
                f"take prompts of {size} and steps of {other}",
                "export it with a dynamic number of tokens, or measure prefill and decode",
            )


def type_name(code: int) -> str:
    """NumPy's name of an ONNX type, or its number if NumPy has none."""
    import onnx

    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(code).name)
    except KeyError:
        return f"type {code}"


# Weights of an ONNX model in a second file: protobuf reads at most 2 GiB at once.
#
# The second file is named by its own sha256, and the model names it. So the model's sha256 also
# stands for the weights.

LARGEST_BYTES = 2_000_000_000
"""Weights up to this size are stored in the model; protobuf's limit is 2^31 - 1 for the whole."""
SUFFIX = ".data"


def aside_name(path: Path) -> str:
    """The name under which exporters first write the weights of a model."""
    return f"{path.name}{SUFFIX}"


def name_weights(path: Path) -> None:
    """Renames the weights beside a model to `SHA256.data`, also in the model; if there are any."""
    import onnx

    aside = path.with_name(aside_name(path))
    if not aside.is_file():
        return
    name = f"{file_sha256(aside)}{SUFFIX}"
    model = onnx.load(str(path), load_external_data=False)
    for tensor in _outside(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
    path.write_bytes(model.SerializeToString())
    aside.rename(path.with_name(name))


def save_model(model: "onnx.ModelProto", path: Path) -> None:
    """Writes a model; its weights into a second file if they are too large for one."""
    import onnx

    is_large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > LARGEST_BYTES
    onnx.save(model, str(path), save_as_external_data=is_large, location=aside_name(path))
    name_weights(path)


def weights_beside(path: Path) -> Path | None:
    """The second file of a staged model; `None` if it is one file."""
    return next(path.parent.glob(f"*{SUFFIX}"), None)


def _outside(model: "onnx.ModelProto") -> Iterator["onnx.TensorProto"]:
    import onnx

    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


# Checks that a user's file has the states that its card promises.


def check_onnx_states(model: "onnx.ModelProto", source: Path, inputs: Sequence[ModelInput]) -> None:
    """Checks the outputs of an ONNX graph; its exporter keeps names, so they must agree.

    Raises:
        ExportError: an output is missing, or cannot be the next input.
    """
    outputs = []
    for value in model.graph.output:
        tensor = value.type.tensor_type
        sizes = tuple(dim.dim_value if dim.dim_value > 0 else "" for dim in tensor.shape.dim)
        dtype = type_name(tensor.elem_type)
        outputs.append(StoredInput(name=value.name, dtype=dtype, sizes=sizes))
    _check(source, outputs, inputs, has_names=True)


def check_tflite_states(data: bytes, source: Path, inputs: Sequence[ModelInput]) -> None:
    """Checks the outputs of a TFLite file.

    Some converters rename all outputs and keep their order: then the last ones are the states.

    Raises:
        ExportError: as above.
        struct.error, IndexError, ValueError: the file is damaged.
    """
    if any(one.state is not None for one in inputs):
        _check(source, tflite_outputs(data), inputs, has_names=False)


def _check(
    source: Path, outputs: Sequence[StoredInput], inputs: Sequence[ModelInput], *, has_names: bool
) -> None:
    stated = [one for one in inputs if one.state is not None]
    by_name = {output.name: output for output in outputs}
    missing = [one.state for one in stated if one.state not in by_name]
    is_renamed = not has_names and len(missing) == len(stated) < len(outputs)
    if missing and not is_renamed:
        raise ExportError(
            f"{source} has the outputs {', '.join(by_name)}; its card promises the states "
            f"{', '.join(map(str, missing))}",
            "correct state = ... of [[inputs]] in the card, or export the file with its states as "
            "outputs",
        )
    last = outputs[len(outputs) - len(stated) :]
    found = last if is_renamed else [by_name[str(one.state)] for one in stated]
    for one, output in zip(stated, found, strict=True):
        if not _fits(one, output):
            raise ExportError(
                f"{source}: output {output.name!r} is {output.dtype} of {list(output.sizes)}, and "
                f"the input {one.name!r} that it should feed is {one.dtype} of {list(one.shape)}",
                "correct state = ... of [[inputs]] in the card, or its shape",
            )


def _fits(one: ModelInput, output: StoredInput) -> bool:
    """Whether the output can be the next input; a free size fits any."""
    return output.dtype in {one.dtype, ""} and (
        len(output.sizes) == len(one.shape)
        and all(
            not isinstance(size, int) or size == wanted
            for size, wanted in zip(output.sizes, one.shape, strict=True)
        )
    )


Shape = tuple[int, ...]
_Sizes = Callable[["onnx.NodeProto", Mapping[str, Shape]], float]

_UNCOUNTED = frozenset({
    "Attention", "DFT", "DeformConv", "Einsum", "If", "Loop", "Scan", "SequenceMap", "STFT",
})  # fmt: skip
"""ONNX operators that multiply, or contain a graph that may, and that are not counted here."""


def count_onnx_macs(model: "onnx.ModelProto", batch: int | None = None) -> int | None:
    """MACs of one inference at batch 1, with the same rules as `networks.cost`.

    Counts convolutions and matrix products, also quantised ones, plus half of
    `ELEMENTWISE_FLOPS` for each element of softmax and layer normalisation. Recurrent layers
    multiply every time step with both matrices.

    Args:
        model: with the sizes of all inputs, except a dynamic batch.
        batch: samples in one inference; `None` takes the first axis of an image.

    Returns:
        `None` if the count would be a guess: the graph has an operator outside ONNX's domain, one
        that multiplies in another way, or a tensor of unknown size.
    """
    nodes = model.graph.node
    if any(node.domain not in ("", "ai.onnx") or node.op_type in _UNCOUNTED for node in nodes):
        return None
    shapes = _shapes(model)
    try:
        macs = sum(_MACS[node.op_type](node, shapes) for node in nodes if node.op_type in _MACS)
    except (KeyError, IndexError):
        return None
    # The first axis of an image input; 1 without an image input.
    images = (shapes[it.name] for it in model.graph.input if len(shapes.get(it.name, ())) == 4)
    return round(macs / (batch or next((shape[0] for shape in images), 1) or 1))


def _convolution(weights: int) -> _Sizes:
    def macs(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
        # Per output element: the weights of one filter, (channels / groups) x kernel.
        return math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[weights]][1:])

    return macs


def _product(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
    return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _gemm(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
    is_transposed = any(it.name == "transA" and it.i for it in node.attribute)
    return math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if is_transposed else 1]


def _recurrent(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
    # (directions, gates x hidden, inputs or hidden): each step of each sample uses both.
    steps_and_batch = shapes[node.input[0]][:2]
    matrices = sum(math.prod(shapes[name]) for name in node.input[1:3])
    return math.prod(steps_and_batch) * matrices


def _elementwise(node: "onnx.NodeProto", shapes: Mapping[str, Shape]) -> float:
    return ELEMENTWISE_FLOPS / 2 * math.prod(shapes[node.output[0]])


_MACS: Mapping[str, _Sizes] = {
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": lambda node, shapes: (
        math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])
    ),
    "MatMul": _product,
    "MatMulInteger": _product,
    "QLinearMatMul": _product,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Softmax": _elementwise,
    "LogSoftmax": _elementwise,
    "LayerNormalization": _elementwise,
}


def _shapes(model: "onnx.ModelProto") -> dict[str, Shape]:
    """The known sizes of tensors, with batch 1 where the batch is dynamic."""
    import onnx

    graph_only = onnx.ModelProto()
    graph_only.CopyFrom(model)
    for value in graph_only.graph.input:
        dims = value.type.tensor_type.shape.dim
        if dims and not dims[0].HasField("dim_value"):
            dims[0].dim_value = 1
    # Sizes that were inferred with a dynamic batch.
    del graph_only.graph.value_info[:]
    for value in graph_only.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(graph_only, data_prop=True).graph
    known = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
        if value.type.tensor_type.HasField("shape")
        and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }
    return known | {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}


_LOG = logging.getLogger(__name__)


def stage_onnx(
    source: Path,
    path: Path,
    input_size: int | None,
    inputs: Sequence[ModelInput] = (),
    batch: int = 1,
    step_inputs: Sequence[ModelInput] = (),
) -> Cost:
    """Copies a graph into one file that contains its weights and fixed sizes; counts its MACs.

    Args:
        source: the user's file.
        path: the copy.
        input_size: height and width; used only if the file's height and width are dynamic.
        inputs: as the card states them; then the copy has exactly these sizes.
        batch: samples in one inference of these sizes.
        step_inputs: the inputs of a later inference of the same file; empty if all are alike.

    Raises:
        ExportError: damaged, uses files elsewhere, or contradicts the stated inputs.
    """
    import onnx

    with failing_as(
        ExportError, f"{source} is not an ONNX model", "export it again, or correct the path"
    ):
        model = onnx.load(str(source), load_external_data=False)
    if not model.graph.node:
        raise ExportError(f"{source} holds no ONNX graph", "export it again, or correct the path")
    _check_external_data(model, source)
    try:
        # Reads the external data, so that the copy is a single file.
        model = onnx.load(str(source))
    except Exception as error:
        raise ExportError(
            f"{source} is damaged: {_first_line(error)}", "export it again with its external data"
        ) from error
    try:
        onnx.checker.check_model(model)
    except Exception as error:
        raise ExportError(
            f"onnx.checker rejects {source}: {_first_line(error)}",
            "fix the reported problem, or export the model again",
        ) from error
    check_onnx_scales(model.graph, source)
    if inputs:
        fix_inputs(model, source, inputs, step_inputs or inputs)
        check_onnx_states(model, source, inputs)
    else:
        _fix_sizes(model, input_size)
    save_model(model, path)
    macs = _counted_macs(model, batch if inputs else None)
    return Cost(macs=macs, parameters=None, method=None if macs is None else FlopsMethod.COUNTED)


def _counted_macs(model: "onnx.ModelProto", batch: int | None) -> int | None:
    try:
        return count_onnx_macs(model, batch)
    except Exception:  # a graph that the checker will reject, or one larger than protobuf's 2 GiB
        _LOG.exception("MACs could not be counted")
        return None


def _fix_sizes(model: "onnx.ModelProto", input_size: int | None) -> None:
    """Sets the image size of inputs with dynamic sizes; does not change the batch.

    `check_sizes` has refused all other dynamic sizes.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim[1:]:
            if value.name not in weights and dim.dim_value < 1 and input_size is not None:
                dim.dim_value = input_size


def _check_external_data(model: "onnx.ModelProto", source: Path) -> None:
    """Reports problems with weights outside the file."""
    folder, watched = source.resolve().parent, external_data(source)
    for location in sorted(set(_external_locations(model))):
        # resolve() also follows links to targets outside the folder.
        target = (folder / location).resolve()
        if not target.is_relative_to(folder):
            raise ExportError(
                f"{source}: external data {location!r} is outside the model's folder",
                "keep model and data in one folder; do not use a model that reads other files",
            )
        if location not in watched:
            raise ExportError(
                f"{source}: external data {location!r} belongs to a part of the model that "
                "fleetrank does not watch for changes",
                "save the model as one file: onnx.save(onnx.load(...), ...)",
            )
        if not target.is_file():
            raise ExportError(
                f"{source}: external data {location!r} is missing", "copy it beside the model"
            )


def _external_locations(message: "Message") -> Iterator[str]:
    """External data of all tensors: initializers, attributes, subgraphs and functions."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.name == "external_data":
            yield from (entry.value for entry in value if entry.key == "location")
            continue
        for part in value if isinstance(value, Sequence) else (value,):
            yield from _external_locations(part)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


# The inputs that a model file states, as a card states them.

_BATCH_NAME = re.compile(r"b|n|bs|.*batch.*", re.IGNORECASE)
"""Names that exporters give the axis of samples."""
_NO_NAME = re.compile(
    r"|\?|-1|none|s\d+|unk__\d+|dim_?\d+|dyn\w*\d*|\w*_dim_\d+|\w*dynamic_axes_\d+",
    re.IGNORECASE,
)
"""What exporters give an axis without a name: PyTorch, tf2onnx, ONNX, Paddle."""
_AXIS = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_SUM = re.compile(
    rf"({_AXIS.pattern}|\d{{1,9}})(( *[+*] *| +- +)({_AXIS.pattern}|\d{{1,9}})){{1,3}}", re.ASCII
)
"""What some exporters write in place of a name: how the size follows from other axes."""


def inputs_of(path: Path, format_: Format) -> tuple[CardInput, ...]:
    """The inputs of a model file in its order, with free axes as names.

    A free axis that is named like a batch is `batch`; without such a name a free first axis that
    has no name is. A first axis with another name, such as `n_nodes`, is an axis like others: one
    node is not a batch of 1. Other axes keep the file's name in lower case; one without a name
    is called after its input and place. A size such as `past + 1` follows from its axes.

    Raises:
        CardError: the file is not a model of this format, or an input is not a tensor of numbers.
    """
    remedy = "export it again, or correct the path"
    with failing_as(CardError, f"{path} is not a readable .{format_} model", remedy):
        found = read_inputs(path, format_)
    for one in found:
        if not one.dtype:
            raise CardError(
                f"{path}: input {one.name!r} is not a tensor of numbers",
                "use a model whose inputs are numbers",
            )
    names = _AxisNames(found)
    return tuple(
        CardInput(name=one.name, shape=names.named(one.name, one.sizes), dtype=one.dtype)
        for one in found
    )


def check_sizes(card: ModelCard) -> None:
    """Checks that a file whose inputs its card does not state leaves only the batch open.

    ONNX files may also leave height and width open if the card gives `input_size`. A file that
    cannot be read passes: its export reports what is wrong with it.

    Raises:
        ExportError: names file, input and axis.
    """
    format_ = own_format(card)
    if format_ is None or card.inputs:
        return
    try:
        found = read_inputs(Path(card.entry), format_)
    except UNREADABLE:
        return
    for one in found:
        free = [axis for axis, size in enumerate(one.sizes) if axis and isinstance(size, str)]
        is_image = format_ is Format.ONNX and len(one.sizes) == 4 and len(free) == 2
        if not free or (is_image and card.input_size is not None):
            continue
        what = f"{card.entry}: input {one.name!r}"
        if is_image:
            raise ExportError(
                f"{what} has dynamic height and width", "give input_size in the card, in pixels"
            )
        raise ExportError(
            f"{what} has dynamic dimensions besides the batch: "
            f"{', '.join(f'axis {axis}' for axis in free)}",
            "state its sizes with [[inputs]] in the card, or export it with all sizes fixed except "
            "the first, the batch",
        )


class _AxisNames:
    """Gives each free axis of a file a name that a card accepts."""

    def __init__(self, inputs: Sequence[StoredInput]) -> None:
        sizes = {size for one in inputs for size in one.sizes if isinstance(size, str)}
        self._stated = {size for size in sizes if _AXIS.fullmatch(size)}
        sizes = set(map(self._spaced, sizes))
        free = {x for one in sizes for x in (_AXIS.findall(one) if _SUM.fullmatch(one) else [one])}
        self._batch = {name for name in free if _BATCH_NAME.fullmatch(name)}
        self._first_is_batch = not self._batch
        if self._first_is_batch:
            # A `.pt2` has no names of axes: its reader calls them after their input and place.
            self._batch = {
                size
                for one in inputs
                for size in one.sizes[:1]
                if isinstance(size, str) and size
                if size == f"{one.name}_0" or _NO_NAME.fullmatch(size)
            }
        self._known: dict[str, str] = {}
        for name in sorted(filter(re.compile(AXIS_NAME).fullmatch, free)):
            self._name(name)  # it needs no change, wherever the file has it

    def named(self, name: str, sizes: Sequence[int | str]) -> tuple[int | str, ...]:
        """The sizes of an input with the names of its axes."""
        return tuple(
            size if isinstance(size, int) else self._axis(size, name, place)
            for place, size in enumerate(sizes)
        )

    def _axis(self, symbol: str, name: str, place: int) -> str:
        if not symbol and place == 0 and self._first_is_batch:
            return BATCH
        symbol = self._spaced(symbol)
        if _SUM.fullmatch(symbol):
            named = _AXIS.sub(lambda found: self._name(found[0]), symbol)
            return re.sub(r" *([+*]| -) *", lambda found: f" {found[1].strip()} ", named)
        return self._name(symbol or f"{name}_{place}")

    def _spaced(self, symbol: str) -> str:
        """`seq - 1` for `seq-1` where another axis is `seq`; else it is a name with a hyphen."""
        parts = symbol.split("-")
        is_difference = all(part in self._stated or part.isdecimal() for part in parts)
        return " - ".join(parts) if is_difference else symbol

    def _name(self, key: str) -> str:
        if key in self._batch:
            return BATCH
        if key not in self._known:
            wanted = re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")
            wanted = wanted if wanted[:1].isalpha() else f"axis_{wanted}"
            wanted = wanted[:LONGEST_AXIS].rstrip("_")
            stem = wanted[: LONGEST_AXIS - 4]
            names = [wanted, *(f"{stem}_{number}" for number in range(2, 1000))]
            taken = {*self._known.values(), BATCH}
            self._known[key] = next(one for one in names if one not in taken)
        return self._known[key]
