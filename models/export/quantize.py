"""Writes a network with integers, in each format whose runtime computes with them.

Inputs and outputs stay 32-bit floats, so that the files of all runtimes do the same work. The name
and version of each recipe are in `models.cards.card.RECIPES`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.calibration import read_calibration
from fleetrank.models.cards.card import GROUP, Calibration, ExportRequest
from fleetrank.models.errors import ExportError
from fleetrank.models.export.exporters import EXPORTERS, ONLY_METHOD, ONLY_SIGNATURE, write_pte
from fleetrank.models.export.program import Program
from fleetrank.models.networks.examples import (
    INPUT_SEED,
    Arguments,
    Examples,
    image_examples,
    stated_examples,
)
from fleetrank.models.onnx_external_weights import save_model

if TYPE_CHECKING:
    import onnx
    import torch

    from fleetrank.models.networks.examples import Array

Calls = tuple[Arguments, ...]
_SEED = INPUT_SEED + 1
"""Other numbers than those with which the file is verified."""


def export_quantised(
    program: Program, path: Path, request: ExportRequest, examples: Examples
) -> None:
    """Writes the network of a request whose precision has a recipe.

    Raises:
        ExportError: the user's data cannot calibrate it.
    """
    name = str(request.recipe).partition("/")[0]
    if (write := _WEIGHTS_ONLY.get(name)) is not None:
        write(program, path)
        return
    _CALIBRATED[name](program, _calibration_calls(request, examples), path)


def _calibration_calls(request: ExportRequest, examples: Examples) -> Calls:
    """The user's data; or inputs like those of the verification, with another seed.

    Raises:
        ExportError: an entry point returned its inputs, so nothing says which others it takes.
    """
    if request.weights.calibration is not None:
        return _given_calls(request.weights.calibration, examples)
    if request.inputs:
        return stated_examples(request.inputs, request.batch, seed=_SEED).calls
    if examples.has_whole_cases:
        raise ExportError(
            f"entry point {request.card.entry} returns its inputs, one case, which shows no range "
            "of values",
            "state [[inputs]] in the card, or give data with `calibrate`",
        )
    return image_examples(request.card.input_size or 224, request.batch, seed=_SEED).calls


def _given_calls(given: Calibration, examples: Examples) -> Calls:
    """The cases in batches; the last ones are repeated to fill their batch."""
    import torch

    if len(examples.traced) != 1:
        raise ExportError(
            f"a network with {len(examples.traced)} inputs is calibrated with seeded values only",
            "leave out `calibrate`",
        )
    batch, *shape = examples.traced[0].shape
    cases = torch.from_numpy(read_calibration(given, shape)).to(examples.traced[0].dtype)
    n_batches = -(-len(cases) // batch)
    filled = cases[torch.arange(n_batches * batch).clamp(max=len(cases) - 1)]
    return tuple((part.clone(),) for part in filled.split(batch))


@contextmanager
def _float_file(program: Program, path: Path) -> Iterator[Path]:
    """The network in fp32, in a folder that goes with the weights of a large one beside it."""
    with TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder, f"float{path.suffix}")
        EXPORTERS[Format(path.suffix[1:])].export(program, whole)
        yield whole


def _named(names: Sequence[str], call: Arguments) -> "dict[str, Array]":
    return {name: one.numpy() for name, one in zip(names, call, strict=True)}


def _write_onnx(activations: str, program: Program, calls: Calls, path: Path) -> None:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # the library has no types
        """The calls, one after the other."""

        def __init__(self, names: Sequence[str]) -> None:
            self._names, self._calls = names, iter(calls)

        def get_next(self) -> "dict[str, Array] | None":
            """The next call; `None` after the last."""
            call = next(self._calls, None)
            if call is None:
                return None
            return _named(self._names, call)

    with _float_file(program, path) as whole:
        ready = whole.with_name("ready.onnx")
        quant_pre_process(whole, ready, skip_symbolic_shape=True)
        quantize_static(
            ready,
            path,
            Reader(_onnx_inputs(ready)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType[activations],
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )


def _onnx_inputs(path: Path) -> list[str]:
    import onnx

    return [one.name for one in onnx.load(str(path), load_external_data=False).graph.input]


def _write_tflite(bits: int, program: Program, calls: Calls, path: Path) -> None:
    from ai_edge_quantizer import qtyping, quantizer, recipe

    # Without names the converter numbers the inputs.
    names = program.input_names or [f"args_{place}" for place in range(len(program.arguments))]
    with _float_file(program, path) as whole:
        tool = quantizer.Quantizer(str(whole))
        recipes = {8: recipe.static_wi8_ai8, 16: recipe.static_wi8_ai16}
        tool.load_quantization_recipe(recipes[bits]())
        for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
            tool.update_quantization_recipe(
                regex=".*", operation_name=end, algorithm_key=quantizer.AlgorithmName.NO_QUANTIZE
            )
        ranges = tool.calibrate({ONLY_SIGNATURE: [_named(names, call) for call in calls]})
        tool.quantize(ranges).export_model(str(path), overwrite=True)


def _write_pte(program: Program, calls: Calls, path: Path) -> None:
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    plan = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    watched = prepare_pt2e(program.trace().module(), plan)
    for call in calls:
        watched(*call)
    write_pte({ONLY_METHOD: torch.export.export(convert_pt2e(watched), program.arguments)}, path)


def _write_products(program: Program, path: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _float_file(program, path) as whole:
        model = onnx.load(str(whole))
    # It raises on sizes that the exporter stored and that no longer fit.
    del model.graph.value_info[:]
    _untie_heads(model)  # the tool would transpose a table that Gather reads, too
    quantize_dynamic(
        model, path, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8
    )


def _write_nbits(bits: int, program: Program, path: Path) -> None:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    with _float_file(program, path) as whole:
        model = onnx.load(str(whole))
    _untie_heads(model)
    tool = MatMulNBitsQuantizer(
        model, bits=bits, block_size=GROUP, is_symmetric=False, accuracy_level=4
    )
    tool.process()
    save_model(tool.model.model, path)


def _untie_heads(model: "onnx.ModelProto") -> None:
    """Gives each product with a transposed table its own weights: only a MatMul is quantised."""
    from onnx import helper, numpy_helper

    tables = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        settings = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        is_plain = settings.get("alpha", 1.0) == settings.get("beta", 1.0) == 1.0
        if node.op_type != "Gemm" or len(node.input) != 2 or not is_plain:
            continue
        if settings.get("transA", 0) or node.input[1] not in tables:
            continue
        weights = numpy_helper.to_array(tables[node.input[1]])
        own = weights.T.copy() if settings.get("transB", 0) else weights
        name = f"{node.input[1]}_of_{node.output[0]}"
        model.graph.initializer.append(numpy_helper.from_array(own, name))
        product = helper.make_node("MatMul", [node.input[0], name], node.output, name=node.name)
        node.CopyFrom(product)


def _write_dynamic(bits: int, program: Program, path: Path) -> None:
    from ai_edge_quantizer import quantizer, recipe

    recipes = {8: recipe.dynamic_wi8_afp32, 4: recipe.dynamic_wi4_afp32}
    with _float_file(program, path) as whole:
        tool = quantizer.Quantizer(str(whole))
        tool.load_quantization_recipe(recipes[bits]())
        tool.quantize().export_model(str(path), overwrite=True)


def _write_linear(bits: int, program: Program, path: Path) -> None:
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    dtypes = {8: (torch.int8, PerAxis(0)), 4: (torch.int4, PerGroup(GROUP))}
    dtype, granularity = dtypes[bits]
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=dtype, weight_granularity=granularity
    )
    give_own_head(program.network)
    quantize_(program.network, config)
    EXPORTERS[Format.PTE].export(program, path)


def give_own_head(network: "torch.nn.Module") -> None:
    """Of a decoder whose head reads its table: `quantize_` finds linear layers only."""
    import torch

    from fleetrank.models.networks.decoder import Decoder

    if isinstance(network, Decoder) and network.head is None:
        table = network.embedding.tokens.weight
        network.head = torch.nn.Linear(table.shape[1], table.shape[0], bias=False)
        network.head.weight = table


_CALIBRATED: dict[str, Callable[[Program, Calls, Path], None]] = {
    "qdq-u8s8": partial(_write_onnx, "QUInt8"),
    "qdq-s8s8": partial(_write_onnx, "QInt8"),
    "static-wi8-ai8": partial(_write_tflite, 8),
    "static-wi8-ai16": partial(_write_tflite, 16),
    "xnnpack-pt2e": _write_pte,
}
_WEIGHTS_ONLY: dict[str, Callable[[Program, Path], None]] = {
    "dynamic-matmul": _write_products,
    "matmul-nbits8": partial(_write_nbits, 8),
    "matmul-nbits4": partial(_write_nbits, 4),
    "dynamic-wi8": partial(_write_dynamic, 8),
    "dynamic-wi4": partial(_write_dynamic, 4),
    "8da8w": partial(_write_linear, 8),
    "8da4w": partial(_write_linear, 4),
}
