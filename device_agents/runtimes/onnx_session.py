"""The parts of ONNX Runtime's session that are used here, and its inputs and outputs as specs."""

from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, specs_of, with_batch
from fleetrank.foundation.inputs import ModelInput

if TYPE_CHECKING:
    from onnxruntime import InferenceSession as Session
    from onnxruntime import NodeArg as Node

DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int16)": "int16",
    "tensor(int8)": "int8", "tensor(uint64)": "uint64", "tensor(uint32)": "uint32",
    "tensor(uint16)": "uint16", "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}  # fmt: skip
"""ONNX Runtime's names of types, and NumPy's."""


def input_specs(session: "Session", execution: Execution) -> tuple[ModelInput, ...]:
    """The inputs with all sizes.

    Raises:
        UnsupportedError: a type is not numeric, a size has no value, or the task states others.
    """
    return specs_of([_found(node) for node in session.get_inputs()], execution)


def _found(node: "Node") -> FoundInput:
    if node.type not in DTYPES:
        raise UnsupportedError(
            f"input {node.name!r} has the type {node.type}", "use a model whose inputs are numbers"
        )
    sizes = tuple(size if isinstance(size, int) and size > 0 else None for size in node.shape)
    return FoundInput(name=node.name, sizes=sizes, dtype=DTYPES[node.type])


def fixed_spec_of(node: "Node", batch: int) -> ModelInput | None:
    """An output of known size: only its first dimension may be dynamic; otherwise `None`."""
    rest = node.shape[1:]
    if node.type not in DTYPES or not all(isinstance(size, int) and size > 0 for size in rest):
        return None
    if not node.shape:
        return None
    found = _found(node)
    shape = with_batch(node.name, found.sizes, batch)
    return ModelInput(name=node.name, shape=shape, dtype=found.dtype)
