"""The shorter search of the ONNX exporter finds what the whole search finds."""

import contextlib

import pytest

from fleetrank.models.export.rewrite_search import direct_search

pytestmark = pytest.mark.export
N_OTHER = 300


def sliced_graph() -> bytes:
    """Two slices of one input, as the pattern with two last nodes has them, among other nodes."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    numbers = {"zero": 0, "half": 4, "end": 8, "axis": 1}
    constants = [numpy_helper.from_array(np.array([n]), name) for name, n in numbers.items()]
    nodes = [
        helper.make_node("Slice", ["x", "zero", "half", "axis"], ["left"]),
        helper.make_node("Slice", ["x", "half", "end", "axis"], ["right"]),
        helper.make_node("Mul", ["left", "right"], ["y0"]),
        *(helper.make_node("Sin", [f"y{n}"], [f"y{n + 1}"]) for n in range(N_OTHER)),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 8]), (f"y{N_OTHER}", [2, 4]))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return model.SerializeToString()


def optimised(search: contextlib.AbstractContextManager[None]) -> tuple[bytes, int]:
    """The optimised graph, and how often an operator was looked at."""
    import onnx
    import onnx_ir
    import onnxscript.optimizer

    looks = 0
    plain = onnx_ir.Node.op_identifier

    def counting(node: onnx_ir.Node) -> object:
        nonlocal looks
        looks += 1
        return plain(node)

    model = onnx_ir.serde.deserialize_model(onnx.load_from_string(sliced_graph()))
    with pytest.MonkeyPatch.context() as patch, search:
        patch.setattr(onnx_ir.Node, "op_identifier", counting)
        onnxscript.optimizer.optimize_ir(model)
    proto = onnx_ir.serde.serialize_model(model)
    return proto.SerializeToString(), looks


def test_the_graph_is_the_same_and_the_search_no_longer_quadratic() -> None:
    whole, many = optimised(contextlib.nullcontext())
    direct, few = optimised(direct_search())
    assert direct == whole
    assert many > N_OTHER**2 > 4 * few


def test_the_library_is_as_before_afterwards() -> None:
    from onnxscript.rewriter import _matcher

    before = _matcher.SimplePatternMatcher.match
    with direct_search():
        assert _matcher.SimplePatternMatcher.match is not before
    assert _matcher.SimplePatternMatcher.match is before
