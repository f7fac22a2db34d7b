"""An exported program of PyTorch's: its inputs, its place, and the module that runs it."""

import importlib
from collections.abc import Callable
from typing import cast

from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.runner import TensorSpec, with_batch


def bare_module(program: object) -> Callable[..., object]:
    """The module without checks of its own.

    Its guards are Python text from the file; its check of shapes takes 10 to 30 us of each
    inference, in which a GPU only waits.
    """
    module = program.module(check_guards=False)  # type: ignore[attr-defined]
    module.validate_inputs = False
    return cast(Callable[..., object], module)


def moved(program: object, device: str) -> object:
    """The program with weights, constants and factories of tensors on a device."""
    passes = importlib.import_module("torch.export.passes")
    return cast(object, passes.move_to_device_pass(program, device))


def inputs_of(program: object, batch: int) -> tuple[TensorSpec, ...]:
    """Inputs of the graph in order; a symbolic first size becomes the batch."""
    signature = program.graph_signature  # type: ignore[attr-defined]
    nodes = {node.name: node for node in program.graph.nodes}  # type: ignore[attr-defined]
    specs = []
    for name in signature.user_inputs:
        tensor = nodes[name].meta["val"] if name in nodes else None
        if tensor is None or not hasattr(tensor, "dtype"):
            raise UnsupportedError(
                f"input {name!r} is no tensor", "export the model with tensor inputs only"
            )
        sizes = (size if type(size) is int else None for size in tensor.shape)
        shape = with_batch(name, sizes, batch)
        dtype = str(tensor.dtype).removeprefix("torch.")
        specs.append(TensorSpec(name=name, shape=shape, dtype=dtype))
    return tuple(specs)
