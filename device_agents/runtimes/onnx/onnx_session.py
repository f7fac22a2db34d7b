"""The parts of ONNX Runtime's session that are used here, and its inputs and outputs as specs."""

from collections.abc import Sequence
from typing import Protocol

from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.runner import Array, TensorSpec, with_batch

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


class Value(Protocol):
    """An array in the memory of a device."""

    def update_inplace(self, array: Array) -> None:
        """Copies an array from the host into the same memory."""

    def numpy(self) -> Array:
        """Copies it to the host."""
        ...


class Binding(Protocol):
    """Places in memory of the inputs and outputs of one session."""

    def bind_ortvalue_input(self, name: str, value: Value) -> None:
        """Reads this input from there."""

    def bind_ortvalue_output(self, name: str, value: Value) -> None:
        """Writes this output there."""

    def bind_output(self, name: str, device: str, device_id: int) -> None:
        """Writes this output to memory that each run allocates."""

    def synchronize_inputs(self) -> None:
        """Waits until the inputs are copied."""

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Copies the outputs to the host."""
        ...


class Session(Protocol):
    """A loaded file."""

    def get_inputs(self) -> Sequence[Node]:
        """The inputs in their order."""
        ...

    def get_outputs(self) -> Sequence[Node]:
        """The outputs in their order."""
        ...

    def get_providers(self) -> Sequence[str]:
        """The providers in use, in order of preference."""
        ...

    def io_binding(self) -> Binding:
        """A new binding without places."""
        ...

    def run(self, output_names: None, feed: dict[str, Array]) -> list[Array]:
        """Runs one inference with inputs in the host's memory; returns all outputs."""
        ...

    def run_with_iobinding(self, binding: Binding, run_options: object) -> None:
        """Runs one inference with the places of the binding."""


class SessionOptions(Protocol):
    """The options that a session is opened with."""

    intra_op_num_threads: int
    inter_op_num_threads: int
    graph_optimization_level: object

    def add_session_config_entry(self, name: str, value: str) -> None:
        """Sets an option that has no attribute."""


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
