"""Refuses files whose stored scales of quantised values cannot be computed with."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.models.errors import ExportError
from fleetrank.models.tflite_types import tflite_scales

if TYPE_CHECKING:
    import onnx

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
