"""Inputs and outputs of an ONNX file, as ONNX Runtime describes them."""

from typing import Protocol

from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.runner import TensorSpec, with_batch

_DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int16)": "int16",
    "tensor(int8)": "int8", "tensor(uint64)": "uint64", "tensor(uint32)": "uint32",
    "tensor(uint16)": "uint16", "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}  # fmt: skip


class Node(Protocol):
    """One input or output; a dynamic dimension is a name or `None`."""

    name: str
    type: str
    shape: list[int | str | None]


def spec_of(node: Node, batch: int) -> TensorSpec:
    """The input with its dynamic first dimension set to the batch.

    Raises:
        UnsupportedError: its type is not numeric, or another dimension is dynamic.
    """
    if node.type not in _DTYPES:
        raise UnsupportedError(
            f"input {node.name!r} has the type {node.type}", "use a model whose inputs are numbers"
        )
    sizes = (size if isinstance(size, int) and size > 0 else None for size in node.shape)
    return TensorSpec(
        name=node.name, shape=with_batch(node.name, sizes, batch), dtype=_DTYPES[node.type]
    )


def fixed_spec_of(node: Node, batch: int) -> TensorSpec | None:
    """An output of known size: only its first dimension may be dynamic; otherwise `None`."""
    rest = node.shape[1:]
    if node.type not in _DTYPES or not all(isinstance(size, int) and size > 0 for size in rest):
        return None
    return spec_of(node, batch) if node.shape else None
