"""Checks that a user's file has the states that its card promises."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.onnx_file import StoredInput
from fleetrank.models.errors import ExportError
from fleetrank.models.onnx_sizes import type_name
from fleetrank.models.tflite_types import tflite_outputs

if TYPE_CHECKING:
    import onnx


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
