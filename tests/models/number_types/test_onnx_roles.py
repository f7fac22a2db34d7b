"""Which stored tensors of an ONNX graph are weights, and how many numbers they contain."""

import math

import onnx
import pytest
from onnx import TensorProto, helper

from fleetrank.models.onnx_types import onnx_types
from fleetrank.models.stored_types import StoredTypes

FLOAT, INT8, UINT8 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8
Stored = dict[str, tuple[int, list[int]]]
TABLE: Stored = {"table": (FLOAT, [100, 64])}


def stored(tensors: Stored) -> list[onnx.TensorProto]:
    return [
        helper.make_tensor(name, kind, dims, [1] * math.prod(dims))
        for name, (kind, dims) in tensors.items()
    ]


def types_of(nodes: list[onnx.NodeProto], tensors: Stored) -> StoredTypes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        stored(tensors),
    )
    return onnx_types(helper.make_model(graph).SerializeToString())


def node(operator: str, inputs: str, **numbers: int) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), ["y"], **numbers)


def nbits(bits: int, k: int = 64, n: int = 32) -> tuple[onnx.NodeProto, Stored]:
    """A product whose weights are packed in blocks of 32."""
    packed: Stored = {
        "w": (UINT8, [n, 2, 4 * bits]), "s": (FLOAT, [n, 2]), "z": (UINT8, [n, 2]),
        "b": (FLOAT, [n]),
    }  # fmt: skip
    numbers = {"K": k, "N": n, "bits": bits, "block_size": 32}
    return node("MatMulNBits", "x w s z g b", **numbers), packed


@pytest.mark.parametrize(("bits", "precision"), [(4, "int4"), (8, "int8"), (2, None)])
def test_the_attribute_bits_says_the_precision_of_packed_weights(
    bits: int, precision: str | None
) -> None:
    product, packed = nbits(bits)
    types = types_of([node("Gather", "table i"), product], packed | TABLE)
    assert types.precision == precision
    assert types.parameters == 64 * 32 + 32 + 6400


def test_sizes_that_the_packed_weights_cannot_hold_are_not_counted() -> None:
    product, packed = nbits(4, k=2**40)
    assert types_of([product], packed).parameters is None
    assert types_of([product], packed).precision is None


def test_a_graph_inside_a_node_is_read_too() -> None:
    product, packed = nbits(4)
    branch = helper.make_graph([product], "b", [], [helper.make_tensor_value_info("y", FLOAT, [1])])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    types = types_of([choice], packed | TABLE)
    assert (types.precision, types.parameters) == ("int4", 64 * 32 + 32 + 6400)


@pytest.mark.parametrize(
    ("it", "tensors", "parameters"),
    [
        (
            node("DequantizeLinear", "w s z"),
            {"w": (INT8, [4, 8]), "s": (FLOAT, [8]), "z": (INT8, [8])},
            32,
        ),
        (
            node("DequantizeLinear", "b s z"),
            {"b": (TensorProto.INT32, [8]), "s": (FLOAT, [8]), "z": (TensorProto.INT32, [8])},
            8,
        ),
        (
            node("QLinearConv", "x s z w t v s z b"),
            {"w": (INT8, [4, 3, 1, 1]), "s": (FLOAT, []), "z": (INT8, []), "t": (FLOAT, [4]),
             "v": (INT8, [4]), "b": (TensorProto.INT32, [4])},
            16,
        ),
        (node("QLinearSigmoid", "x s z s z"), {"s": (FLOAT, []), "z": (INT8, [])}, None),
        (node("MatMulInteger", "x w a z"), {"w": (INT8, [4, 8]), "z": (INT8, [8])}, 32),
        (node("Gather", "w x"), {"w": (UINT8, [10, 4])}, 40),
        (node("Reshape", "x w"), {"w": (TensorProto.INT64, [4])}, None),
        (node("GatherBlockQuantized", "w x s", bits=4), {"w": (UINT8, [10, 4]), "s": (FLOAT, [9])},
         80),
        (node("QMoE", "x w s"), {"w": (UINT8, [10, 4]), "s": (FLOAT, [10])}, None),
        (node("MatMulBnb4", "x w s", K=8, N=8), {"w": (UINT8, [32]), "s": (FLOAT, [2])}, None),
    ],
)  # fmt: skip
def test_weights_are_counted_and_scales_shapes_and_zero_points_are_not(
    it: onnx.NodeProto, tensors: Stored, parameters: int | None
) -> None:
    assert types_of([it], tensors).parameters == parameters


def test_quantised_weights_of_an_operator_that_is_not_known_have_no_precision() -> None:
    tensors: Stored = {"w": (UINT8, [10, 4]), "s": (FLOAT, [10])}
    assert types_of([node("QMoE", "x w s")], tensors | TABLE).precision is None


def test_weights_of_a_type_that_has_no_name_here_are_not_fp32() -> None:
    tensors: Stored = {"w": (TensorProto.FLOAT8E4M3FN, [100]), "b": (FLOAT, [10])}
    assert types_of([node("Cast", "w")], tensors).precision is None
