"""Checks a user's ONNX file, writes it as one file with fixed sizes and counts its MACs."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import FlopsMethod
from fleetrank.models.cards.card import Cost, external_data
from fleetrank.models.errors import ExportError
from fleetrank.models.networks.cost import ELEMENTWISE_FLOPS
from fleetrank.models.onnx_external_weights import save_model
from fleetrank.models.onnx_sizes import fix_inputs
from fleetrank.models.quantization_scales import check_onnx_scales
from fleetrank.models.state_outputs import check_onnx_states

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message

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
