"""Types that files state, read without their libraries, beside what the libraries read."""

import math
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.number_types import read_types
from fleetrank.models.onnx_types import onnx_types
from fleetrank.models.pte_types import pte_types
from fleetrank.models.stored_types import StoredTypes
from fleetrank.models.tflite_types import tflite_types

TESTS = Path(__file__).parents[2]
DATA = TESTS / "models/data"
PRIMER = "../../../models/networks/primer.tflite"
UINT8 = (DATA / "uint8.tflite").read_bytes()
PTE = (TESTS / "device_agents/data/tiny.pte").read_bytes()


def onnx_file(kind: int, *, border: int = TensorProto.FLOAT, nodes: str = "") -> bytes:
    weights = helper.make_tensor("w", kind, [4, 4], bytes(_BYTES[kind] * 16), raw=True)
    shapes = numpy_helper.from_array(np.zeros(1000, dtype=np.int64), "shape")
    graph = helper.make_graph(
        [helper.make_node(name, ["x"], ["q"]) for name in nodes.split()],
        "g",
        [helper.make_tensor_value_info("x", border, [1, 4])],
        [helper.make_tensor_value_info("y", border, [1, 4])],
        [weights, shapes],
    )
    return helper.make_model(graph).SerializeToString()


_BYTES = {
    TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.BFLOAT16: 2, TensorProto.DOUBLE: 8,
    TensorProto.INT8: 1, TensorProto.UINT8: 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "precision"),
    [
        (TensorProto.FLOAT, "fp32"),
        (TensorProto.FLOAT16, "fp16"),
        (TensorProto.BFLOAT16, "bf16"),
        (TensorProto.DOUBLE, "fp64"),
        (TensorProto.INT8, "int8"),
        (TensorProto.UINT8, "int8"),
    ],
)
def test_weights_decide_and_integers_that_are_shapes_do_not(kind: int, precision: str) -> None:
    assert onnx_types(onnx_file(kind)).precision == precision


def test_weights_in_constant_nodes_count_like_initializers() -> None:
    value = numpy_helper.from_array(np.ones((3, 3), dtype=np.float16))
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["w"], value=value)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    assert onnx_types(helper.make_model(graph).SerializeToString()).precision == "fp16"


def test_a_graph_without_weights_has_the_type_of_its_border() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1])],
    )
    types = onnx_types(helper.make_model(graph).SerializeToString())
    assert (types.precision, types.inputs, types.border) == ("fp16", ("float16",), "float")


@pytest.mark.parametrize(
    ("inputs", "outputs", "border"),
    [
        (("float16", "int64", "bool"), ("float32",), "float"),
        (("int64",), ("float32", "int64"), "float"),
        (("int8",), ("int8",), "int8 in, int8 out"),
        (("uint8", "float32", "int16"), ("int64",), "float/int16/uint8 in"),
        (("int64",), ("int8",), "int8 out"),
        (("", "float32"), ("float32",), None),
        ((), (), None),
    ],
)
def test_the_border_names_integers_that_are_no_indices(inputs, outputs, border) -> None:
    assert StoredTypes(inputs=inputs, outputs=outputs).border == border


def test_fp32_weights_that_the_graph_quantises_say_nothing() -> None:
    assert onnx_types(onnx_file(TensorProto.FLOAT, nodes="QuantizeLinear")).precision is None
    assert onnx_types(onnx_file(TensorProto.INT8, nodes="QuantizeLinear")).precision == "int8"


def test_the_names_of_text_inputs_are_read() -> None:
    data = onnx_file(TensorProto.FLOAT, border=TensorProto.STRING)
    assert onnx_types(data).strings == ("x",)


@pytest.mark.parametrize(
    ("name", "precision", "border"),
    [
        ("fp16.tflite", "fp16", "float"),
        ("uint8.tflite", "int8", "uint8 in, uint8 out"),
        (PRIMER, "fp32", "float"),
    ],
)
def test_tflite_files_made_by_tensorflow(name: str, precision: str, border: str) -> None:
    types = tflite_types((DATA / name).read_bytes())
    assert types.precision == precision
    assert types.border == border


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fp16.tflite", "uint8.tflite", PRIMER])
def test_tflite_types_are_those_that_litert_reads(name: str) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(str(DATA / name))
    ends = (*interpreter.get_input_details(), *interpreter.get_output_details())
    expected = tuple(np.dtype(end["dtype"]).name for end in ends)
    types = tflite_types((DATA / name).read_bytes())
    assert (*types.inputs, *types.outputs) == expected
    scales = [one or (0.0, 0) for one in types.scales]
    assert scales == [pytest.approx(end["quantization"], rel=1e-8) for end in ends]


@pytest.mark.parametrize("is_raw", [True, False])
def test_scales_of_an_integer_border_are_read_from_an_onnx_file(is_raw: bool) -> None:
    def stored(name: str, value: float, kind: type[np.generic]) -> TensorProto:
        array = np.array(value, dtype=kind)
        if is_raw:
            return numpy_helper.from_array(array, name)
        return helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), (), [value])

    ends = {"x": TensorProto.UINT8, "z": TensorProto.INT8, "y": TensorProto.INT8}
    x, z, y = (helper.make_tensor_value_info(name, kind, [1]) for name, kind in ends.items())
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        helper.make_node("DequantizeLinear", ["z", "ys"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    values = [stored("xs", 0.5, np.float32), stored("xz", 200, np.uint8)]
    values += [stored("ys", 0.25, np.float32), stored("yz", -3, np.int8)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x, z], [y], values))
    types = onnx_types(model.SerializeToString())
    assert types.border == "int8/uint8 in, int8 out"
    assert types.border_scales == '{"in": [[0.5, 200], [0.25, 0]], "out": [[0.25, -3]]}'


@pytest.mark.parametrize(("scale", "zero"), [(math.nan, 0), (math.inf, 0), (0.5, math.inf)])
def test_a_scale_that_is_not_a_number_is_left_out(scale: float, zero: float) -> None:
    values = {"s": scale, "z": zero}
    stored = [numpy_helper.from_array(np.float32(one), name) for name, one in values.items()]
    x = helper.make_tensor_value_info("x", TensorProto.INT8, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], stored))
    assert onnx_types(model.SerializeToString()).border_scales is None


def test_a_delegate_hides_weights_but_not_the_border() -> None:
    types = pte_types(PTE)
    assert types.border == "float"
    assert types.hides_weights
    assert types.precision is None


def test_a_pt2_archive_states_its_weights() -> None:
    types = read_types(TESTS / "data/pt2/tiny.pt2", Format.PT2)
    assert types is not None
    assert (types.precision, types.border) == ("fp32", "float")


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "precision"), [("float16", "fp16"), ("bfloat16", "bf16")])
def test_a_pt2_file_of_torch_states_its_weights(tmp_path: Path, dtype: str, precision: str) -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(4, 4).to(getattr(torch, dtype))
    example = torch.zeros(1, 4, dtype=getattr(torch, dtype))
    torch.export.save(torch.export.export(network, (example,)), tmp_path / "m.pt2")
    types = read_types(tmp_path / "m.pt2", Format.PT2)
    assert types is not None
    assert types.precision == precision


def test_a_damaged_file_says_nothing_and_does_not_end_the_plan(tmp_path: Path) -> None:
    for format_ in Format:
        path = tmp_path / f"m.{format_}"
        path.write_bytes(b"this is a text file")
        assert read_types(path, format_) is None
        assert read_types(tmp_path / "gone", format_) is None
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        archive.writestr("m/models/model.json", "[]")
    assert read_types(tmp_path / "m.pt2", Format.PT2) is None


def test_an_onnx_file_of_the_library_is_read_like_the_library_does(tmp_path: Path) -> None:
    content = onnx_file(TensorProto.FLOAT16, border=TensorProto.FLOAT16)
    model = onnx.load_from_string(content)
    names = {TensorProto.FLOAT16: "float16", TensorProto.INT64: "int64"}
    expected = [(names[w.data_type], int(np.prod(w.dims))) for w in model.graph.initializer]
    assert list(onnx_types(content).weights) == expected
