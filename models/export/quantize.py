"""Writes a network with 8-bit integers, in each format whose runtime computes with them.

Inputs and outputs stay 32-bit floats, so that the files of all runtimes do the same work. The name
and version of each recipe are in `models.cards.card.RECIPES`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.calibration import read_calibration
from fleetrank.models.cards.card import Calibration, ExportRequest
from fleetrank.models.errors import ExportError
from fleetrank.models.export.exporters import (
    EXPORTERS,
    ONLY_METHOD,
    ONLY_SIGNATURE,
    Program,
    write_pte,
)
from fleetrank.models.networks.build import (
    INPUT_SEED,
    Arguments,
    Examples,
    image_examples,
    stated_examples,
)

if TYPE_CHECKING:
    from fleetrank.models.networks.build import Array

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
    _WRITERS[request.format](program, _calibration_calls(request, examples), path)


def _calibration_calls(request: ExportRequest, examples: Examples) -> Calls:
    """The user's data; or inputs like those of the verification, with another seed.

    An entry point that returned its inputs is calibrated with those: nothing says what else it
    takes.
    """
    if request.weights.calibration is not None:
        return _given_calls(request.weights.calibration, examples)
    if request.inputs:
        return stated_examples(request.inputs, request.batch, seed=_SEED).calls
    if examples.has_whole_cases:
        return examples.calls
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
    cases = torch.from_numpy(read_calibration(given, shape))
    n_batches = -(-len(cases) // batch)
    filled = cases[torch.arange(n_batches * batch).clamp(max=len(cases) - 1)]
    return tuple((part.clone(),) for part in filled.split(batch))


def _write_onnx(program: Program, calls: Calls, path: Path) -> None:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    whole, ready = path.with_name("float.onnx"), path.with_name("ready.onnx")
    EXPORTERS[Format.ONNX].export(program, whole)
    quant_pre_process(whole, ready, skip_symbolic_shape=True)
    names = _onnx_inputs(ready)

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # the library has no types
        """The calls, one after the other."""

        def __init__(self) -> None:
            self._calls = iter(calls)

        def get_next(self) -> "dict[str, Array] | None":
            """The next call; `None` after the last."""
            call = next(self._calls, None)
            if call is None:
                return None
            return {name: one.numpy() for name, one in zip(names, call, strict=True)}

    quantize_static(
        ready,
        path,
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod.MinMax,
    )
    for scratch in (whole, ready):
        scratch.unlink()


def _onnx_inputs(path: Path) -> list[str]:
    import onnx

    return [one.name for one in onnx.load(str(path), load_external_data=False).graph.input]


def _write_tflite(program: Program, calls: Calls, path: Path) -> None:
    from ai_edge_quantizer import qtyping, quantizer, recipe

    whole = path.with_name("float.tflite")
    EXPORTERS[Format.TFLITE].export(program, whole)
    tool = quantizer.Quantizer(str(whole))
    tool.load_quantization_recipe(recipe.static_wi8_ai8())
    for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
        tool.update_quantization_recipe(
            regex=".*", operation_name=end, algorithm_key=quantizer.AlgorithmName.NO_QUANTIZE
        )
    # Without names the converter numbers the inputs.
    names = program.input_names or [f"args_{place}" for place in range(len(program.arguments))]
    data = [{n: one.numpy() for n, one in zip(names, call, strict=True)} for call in calls]
    ranges = tool.calibrate({ONLY_SIGNATURE: data})
    tool.quantize(ranges).export_model(str(path), overwrite=True)
    whole.unlink()


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


_WRITERS: dict[Format, Callable[[Program, Calls, Path], None]] = {
    Format.ONNX: _write_onnx,
    Format.TFLITE: _write_tflite,
    Format.PTE: _write_pte,
}
