"""Files made by today's quantisers: their precision, and the parameters that ONNX graphs hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.number_types import read_types
from fleetrank.models.stored_types import StoredTypes

pytestmark = pytest.mark.slow
quiet = pytest.mark.filterwarnings("ignore")
"""The quantisers of PyTorch and ExecuTorch use what PyTorch warns about."""
IMAGES = 8 * 3 * 9 + 8 + 8 * 64 + 64 + 64 * 32
TOKENS = 2 * 100 * 64 + 2 * 64 * 128
"""Parameters of the two networks below; the second one has a table of tokens of 100 x 64."""


def network(nodes: list[onnx.NodeProto], x: onnx.ValueInfoProto, **sizes: Any) -> onnx.ModelProto:
    draw = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(draw.standard_normal(size).astype(np.float32) / 4, name)
        for name, size in sizes.items()
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def node(operator: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = [
        node("Conv", "x cw cb", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"),
        node("GlobalAveragePool", "b", "c"), node("Flatten", "c", "d"),
        node("Gemm", "d fw fb", "e"), node("MatMul", "e mw", "y"),
    ]  # fmt: skip
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    path = tmp_path_factory.mktemp("images") / "float.onnx"
    sizes = {"cw": (8, 3, 3, 3), "cb": (8,), "fw": (8, 64), "fb": (64,), "mw": (64, 32)}
    onnx.save(network(nodes, image, **sizes), path)
    return path


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = [
        node("Gather", "table x", "a"), node("MatMul", "a up", "b"), node("Relu", "b", "c"),
        node("MatMul", "c down", "d"), node("MatMul", "d head", "y"),
    ]  # fmt: skip
    ids = helper.make_tensor_value_info("x", TensorProto.INT64, [1, 4])
    path = tmp_path_factory.mktemp("tokens") / "float.onnx"
    sizes = {"table": (100, 64), "up": (64, 128), "down": (128, 64), "head": (64, 100)}
    onnx.save(network(nodes, ids, **sizes), path)
    return path


def types_of(path: Path) -> StoredTypes:
    types = read_types(path, Format(path.suffix[1:]))
    assert types is not None
    return types


def test_the_float_files_count_as_they_did(images: Path, tokens: Path) -> None:
    assert (types_of(images).precision, types_of(images).parameters) == ("fp32", IMAGES)
    assert (types_of(tokens).precision, types_of(tokens).parameters) == ("fp32", TOKENS)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("activation", ["QInt8", "QUInt8"])
def test_a_statically_quantised_file_has_the_parameters_of_its_float_file(
    images: Path, tmp_path: Path, form: str, activation: str
) -> None:
    tools = pytest.importorskip("onnxruntime.quantization")

    class Reader(tools.CalibrationDataReader):  # type: ignore[misc, name-defined]
        inputs = iter([{"x": np.ones((1, 3, 8, 8), dtype=np.float32)}] * 2)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.inputs, None)

    tools.quantize_static(
        images,
        tmp_path / "q.onnx",
        Reader(),
        quant_format=tools.QuantFormat[form],
        per_channel=True,
        activation_type=tools.QuantType[activation],
        weight_type=tools.QuantType.QInt8,
    )
    types = types_of(tmp_path / "q.onnx")
    assert (types.precision, types.parameters) == ("int8", IMAGES)


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_dynamically_quantised_file_has_the_parameters_of_its_float_file(
    images: Path, tokens: Path, tmp_path: Path, per_channel: bool
) -> None:
    tools = pytest.importorskip("onnxruntime.quantization")
    for source, parameters in ((images, IMAGES), (tokens, TOKENS)):
        model = onnx.load(source)
        del model.graph.value_info[:]
        tools.quantize_dynamic(model, tmp_path / "q.onnx", per_channel=per_channel)
        types = types_of(tmp_path / "q.onnx")
        assert (types.precision, types.parameters) == ("int8", parameters)


@pytest.mark.parametrize(
    ("bits", "form", "operators"),
    [
        (4, "QOperator", ("MatMul",)),
        (8, "QOperator", ("MatMul",)),
        (4, "QOperator", ("MatMul", "Gather")),
        (4, "QDQ", ("MatMul",)),
    ],
)
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_decoder_with_weights_in_blocks_says_their_bits_and_counts_them(
    tokens: Path, tmp_path: Path, bits: int, form: str, operators: tuple[str, ...], symmetric: bool
) -> None:
    tools = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    quantizer = tools.MatMulNBitsQuantizer(
        onnx.load(tokens),
        bits=bits,
        block_size=32,
        is_symmetric=symmetric,
        accuracy_level=4,
        quant_format=tools.QuantFormat[form],
        op_types_to_quantize=operators,
        nodes_to_exclude=[],
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "q.onnx"), False)
    types = types_of(tmp_path / "q.onnx")
    assert (types.precision, types.parameters) == (f"int{bits}", TOKENS)


@pytest.fixture(scope="module")
def pt2e() -> Callable[..., Any]:
    """Quantises a small network as the XNNPACK recipe says; returns the exported program."""
    torch = pytest.importorskip("torch")
    recipe = pytest.importorskip("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
    steps = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            return self.head(torch.relu(self.conv(x)).mean((2, 3)))

    def make(**choice: Any) -> Any:
        example = (torch.ones(1, 3, 8, 8),)
        config = recipe.get_symmetric_quantization_config(is_per_channel=True, **choice)
        quantizer = recipe.XNNPACKQuantizer().set_global(config)
        module = torch.export.export(Network().eval(), example).module()
        prepared = steps.prepare_pt2e(module, quantizer)
        prepared(*example)
        return torch.export.export(steps.convert_pt2e(prepared), example)

    return make


@pytest.mark.thorough
@quiet
@pytest.mark.parametrize(
    ("choice", "precision"), [({}, "int8"), ({"weight_qmin": -8, "weight_qmax": 7}, "int4")]
)
def test_a_pt2_file_of_pt2e_has_the_precision_of_its_quantised_weights(
    pt2e: Callable[..., Any], tmp_path: Path, choice: dict[str, int], precision: str
) -> None:
    import torch

    torch.export.save(pt2e(**choice), tmp_path / "q.pt2")
    types = types_of(tmp_path / "q.pt2")
    assert ("float32", 216) in types.weights  # convert_pt2e keeps the float weights too
    assert types.precision == precision


@pytest.mark.thorough
@quiet
def test_a_program_without_a_delegate_has_the_precision_of_its_quantised_weights(
    pt2e: Callable[..., Any], tmp_path: Path
) -> None:
    exir = pytest.importorskip("executorch.exir")
    pytest.importorskip("executorch.kernels.quantized")
    path = tmp_path / "q.pte"
    path.write_bytes(exir.to_edge(pt2e()).to_executorch().buffer)
    assert types_of(path).precision == "int8"
