"""Converts between PyTorch's tensors and NumPy's arrays; NumPy has no bfloat16."""

from dataclasses import replace
from types import ModuleType
from typing import cast

from fleetrank.device_agents.contract.runtime import Array
from fleetrank.foundation.inputs import ModelInput


def as_numpy_has_it(spec: ModelInput) -> ModelInput:
    """The input in a type that NumPy has: bfloat16 is made as float32, and PyTorch rounds it."""
    if spec.dtype != "bfloat16":
        return spec
    return replace(spec, dtype="float32")


def as_tensor(torch: ModuleType, array: Array, spec: ModelInput) -> object:
    """A tensor on the host; a copy, because PyTorch warns about read-only memory."""
    return torch.from_numpy(array.copy()).to(getattr(torch, spec.dtype))


def as_arrays(torch: ModuleType, output: object) -> list[Array]:
    """Copies of an output's tensors on the host, in order."""
    return [_as_array(torch, tensor) for tensor in tensors_of(output)]


def _as_array(torch: ModuleType, tensor: object) -> Array:
    on_host = tensor.detach().cpu()  # type: ignore[attr-defined]
    on_host = on_host.float() if on_host.dtype == torch.bfloat16 else on_host
    return cast(Array, on_host.numpy().copy())


def tensors_of(output: object) -> list[object]:
    """Tensors of an output in order, taken out of tuples, lists and dicts."""
    if isinstance(output, dict):
        return [tensor for value in output.values() for tensor in tensors_of(value)]
    if isinstance(output, tuple | list):
        return [tensor for value in output for tensor in tensors_of(value)]
    return [output] if hasattr(output, "detach") else []
