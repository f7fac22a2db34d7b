"""The parts of ONNX Runtime's session that are used here, and its inputs and outputs as specs."""

from collections.abc import Sequence
from typing import Protocol

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, specs_of, with_batch
from fleetrank.device_agents.runtimes.runner import Array, TensorSpec

DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int16)": "int16",
    "tensor(int8)": "int8", "tensor(uint64)": "uint64", "tensor(uint32)": "uint32",
    "tensor(uint16)": "uint16", "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}  # fmt: skip
"""ONNX Runtime's names of types, and NumPy's."""


class Node(Protocol):
    """One input or output; a dynamic dimension is a name or `None`."""

    name: str
    type: str
    shape: list[int | str | None]


class Value(Protocol):
    """An array in the memory of a device."""

    def update_inplace(self, array: Array) -> None:
        """Copies an array from the host into the same memory."""

    def data_ptr(self) -> int:
        """Address of the memory."""
        ...

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

    def end_profiling(self) -> str:
        """Writes the profile of all runs; returns the path of its file."""
        ...


class SessionOptions(Protocol):
    """The options that a session is opened with."""

    intra_op_num_threads: int
    inter_op_num_threads: int
    graph_optimization_level: object
    enable_profiling: bool
    profile_file_prefix: str

    def add_session_config_entry(self, name: str, value: str) -> None:
        """Sets an option that has no attribute."""


def input_specs(session: Session, execution: Execution) -> tuple[TensorSpec, ...]:
    """The inputs with all sizes.

    Raises:
        UnsupportedError: a type is not numeric, a size has no value, or the task states others.
    """
    return specs_of([_found(node) for node in session.get_inputs()], execution)


def _found(node: Node) -> FoundInput:
    if node.type not in DTYPES:
        raise UnsupportedError(
            f"input {node.name!r} has the type {node.type}", "use a model whose inputs are numbers"
        )
    sizes = tuple(size if isinstance(size, int) and size > 0 else None for size in node.shape)
    return FoundInput(name=node.name, sizes=sizes, dtype=DTYPES[node.type])


def fixed_spec_of(node: Node, batch: int) -> TensorSpec | None:
    """An output of known size: only its first dimension may be dynamic; otherwise `None`."""
    rest = node.shape[1:]
    if node.type not in DTYPES or not all(isinstance(size, int) and size > 0 for size in rest):
        return None
    if not node.shape:
        return None
    found = _found(node)
    shape = with_batch(node.name, found.sizes, batch)
    return TensorSpec(name=node.name, shape=shape, dtype=found.dtype)
