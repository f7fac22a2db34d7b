"""Gives the inputs of an ONNX graph the sizes that a card states."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.inputs import ModelInput
from fleetrank.models.errors import ExportError

if TYPE_CHECKING:
    import onnx


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
