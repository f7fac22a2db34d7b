"""ExecuTorch's runtime for `.pte` programs, with XNNPACK."""

import importlib
import importlib.metadata
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.runtime import Array, Library, LoadedModel, Products
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError, missing_library
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, has_states, specs_of
from fleetrank.device_agents.runtimes.pte_products import METHOD, products_of
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.workload import WorkloadKind, phase_of

if TYPE_CHECKING:
    from executorch.extension.pybindings.portable_lib import ExecuTorchMethod as Method
    from executorch.extension.pybindings.portable_lib import ExecuTorchProgram as Program
    from executorch.extension.pybindings.portable_lib import MethodMeta

_DELEGATE = "XnnpackBackend"
_IDENTIFIER = re.compile(rb"ET\d\d")
"""Bytes 4 to 8 of every program. Source: schema/program.fbs, file_identifier."""
_DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 11: "bool",
}  # fmt: skip
"""Source: runtime/core/portable_type/scalar_type.h (ExecuTorch 1.5)."""
_ERROR_CODE = re.compile(r"error:? 0x:?([0-9a-fA-F]+)")
_UNSUPPORTED_CODES = frozenset({0x10, 0x11, 0x14, 0x20})
"""NotSupported, NotImplemented, OperatorMissing, NotFound. Source: runtime/core/error.h (1.5)."""
_MEMORY_CODES = frozenset({0x21, 0x31})
"""MemoryAllocationFailed, DelegateMemoryAllocationFailed. Source: as above."""


class ExecutorchModel:
    """One loaded method; it fulfils `LoadedModel`."""

    def __init__(
        self,
        torch: ModuleType,
        program: object,
        method: "Method",
        inputs: Sequence[ModelInput],
        settings: Options,
    ) -> None:
        self._torch = torch
        self._program = program  # the method points into it, so it must stay alive
        self._method = method
        self.settings = settings
        self.inputs = tuple(inputs)
        self._arguments: tuple[object, ...] = ()

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Wraps copies of the arrays, because PyTorch warns about read-only memory."""
        self._arguments = tuple(self._torch.from_numpy(array.copy()) for array in arrays)

    def run(self) -> None:
        """Runs one inference; all kernels are done when the call returns.

        The input is copied each time, because the planned memory may have been reused.
        """
        self._method.set_inputs(self._arguments)
        self._method.execute()

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        outputs = self._method.get_outputs(clone_outputs=True)
        return [each.numpy() for each in outputs if hasattr(each, "numpy")]


class ExecutorchRunner:
    """Backend `xnnpack`; ExecuTorch's own kernels run unsupported operators. It has no options.

    Attributes:
        program: the last program that was loaded; `None` before.
    """

    capability = Capability(backends=("xnnpack",))
    library = Library(
        distribution="executorch",
        module="executorch.extension.pybindings.portable_lib",
        extra="executorch",
    )

    def __init__(self, *, is_traced: bool = False) -> None:
        """`is_traced` times each kernel, which makes an inference slower."""
        self._is_traced = is_traced
        self.program: Program | None = None

    def version(self) -> str:
        """The version of the runtime's library."""
        return importlib.metadata.version("executorch")

    def admit(self, path: str) -> str:
        """Accepts every file: a program contains no code, and `load` verifies every file."""
        return path

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact."""
        _check_identifier(path)
        try:
            torch = importlib.import_module("torch")
            library = importlib.import_module("executorch.extension.pybindings.portable_lib")
        except ImportError as error:
            raise missing_library("executorch", "executorch", error) from error
        _check_delegates(path, library._get_registered_backend_names())
        # Before loading: XNNPACK uses the pool that exists then. No other Python call sets it.
        library._unsafe_reset_threadpool(execution.threads)
        torch.set_num_threads(execution.threads)
        try:
            # Checks every offset of the FlatBuffer; the binding's default does not.
            strict = library.Verification.InternalConsistency
            program = library._load_program(
                path, enable_etdump=self._is_traced, program_verification=strict
            )
            method = program.load_method(_method_of(program, execution))
        except RuntimeError as error:
            raise _as_agent_error(error) from error
        self.program = program
        settings: Options = (
            ("threads", int(library._threadpool_get_thread_count())),
            ("xnnpack", True),
        )
        inputs = specs_of(_found(method.method_meta(), execution), execution)
        if has_states(execution):
            return _with_states(torch, (program, method), inputs, execution, settings)
        return ExecutorchModel(torch, program, method, inputs, settings)

    def products(self, path: str, execution: Execution) -> Products:
        """By the weights of XNNPACK's nodes; a product outside of a delegate computes in floats."""
        return products_of(Path(path).read_bytes(), phase_of(execution.workload) or METHOD)


def _with_states(
    torch: ModuleType,
    loaded: "tuple[Program, Method]",
    inputs: Sequence[ModelInput],
    execution: Execution,
    settings: Options,
) -> LoadedModel:
    from fleetrank.device_agents.runtimes.executorch_states import ExecutorchStateModel
    from fleetrank.device_agents.runtimes.states import state_pairs

    program, method = loaded
    names = [f"output_{place}" for place in range(method.method_meta().num_outputs())]
    pairs = state_pairs(inputs, names, has_names=False)
    step = None
    if execution.workload.steps is not None:
        step = program.load_method(WorkloadKind.DECODE.value)
    return ExecutorchStateModel(torch, program, (method, step), (inputs, pairs), settings)


def _method_of(program: "Program", execution: Execution) -> str:
    """The graph of a prompt or of a step, if the program has both; otherwise the usual one."""
    names = {program.get_method_name(number) for number in range(program.num_methods())}
    phase = phase_of(execution.workload)
    return phase if phase in names else METHOD


def _found(meta: "MethodMeta", execution: Execution) -> list[FoundInput]:
    """The inputs; a program states only the largest sizes, so stated smaller ones are possible."""
    found = []
    for number in range(meta.num_inputs()):
        try:
            info = meta.input_tensor_meta(number)
        except RuntimeError as error:
            raise UnsupportedError(
                f"input {number} is not a tensor", "export the model with tensor inputs only"
            ) from error
        dtype = _DTYPES.get(info.dtype())
        if dtype is None:
            raise UnsupportedError(
                f"input {number} has ExecuTorch's scalar type {info.dtype()}",
                f"export the model with one of {', '.join(_DTYPES.values())}",
            )
        stated = execution.inputs[number].shape if number < len(execution.inputs) else ()
        sizes = tuple(int(size) for size in info.sizes())
        if len(stated) == len(sizes):
            pairs = zip(sizes, stated, strict=True)
            sizes = tuple(min(most, size) for most, size in pairs)
        found.append(FoundInput(name=f"input_{number}", sizes=sizes, dtype=dtype))
    return found


def _check_identifier(path: str) -> None:
    with Path(path).open("rb") as file:
        head = file.read(8)
    if not _IDENTIFIER.fullmatch(head[4:8]):
        raise BadArtifactError(
            f"{path} is not an ExecuTorch program", "give a .pte file, or export the model again"
        )


def _check_delegates(path: str, registered: Iterable[str]) -> None:
    """Rejects other delegates of the wheel: they load drivers, and the row would not record them.

    A program names a delegate with the same bytes that the runtime compares, so none is missed.
    """
    data = Path(path).read_bytes()
    for name in registered:
        if name != _DELEGATE and name.encode() + b"\0" in data:
            raise UnsupportedError(
                f"the program requires the delegate {name}", "lower the model to XNNPACK"
            )


def _as_agent_error(error: RuntimeError) -> FleetError | MemoryError:
    text = str(error)
    found = _ERROR_CODE.search(text)
    code = int(found[1], 16) if found else None
    if code in _MEMORY_CODES:
        return MemoryError(f"ExecuTorch: {text}")
    if code in _UNSUPPORTED_CODES:
        return UnsupportedError(
            f"ExecuTorch cannot execute the program: {text}",
            "lower the model to XNNPACK, with operators of ExecuTorch's own library only",
        )
    return BadArtifactError(
        f"ExecuTorch rejects the program: {text}", "export it again, or check where it comes from"
    )
