"""PyTorch runs `.pt2` files of `torch.export`: on the CPU here, on a GPU in `torch_cuda`."""

import importlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

from fleetrank.device_agents.contract.capability import Capability, boolean_option
from fleetrank.device_agents.contract.failures import says_device_lost
from fleetrank.device_agents.contract.gpu_backends import CUDA
from fleetrank.device_agents.contract.runtime import Array, Library, LoadedModel
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError, missing_library
from fleetrank.device_agents.runtimes import torch_cuda
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, has_states, specs_of
from fleetrank.device_agents.runtimes.pt2_scan import copy_checked
from fleetrank.device_agents.runtimes.torch_tensors import as_arrays, as_numpy_has_it, as_tensor
from fleetrank.foundation.errors import FleetError, is_out_of_memory
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import Mode

_QUANTISED_OPERATORS = "torch.ao.quantization.fx._decomposed"
"""Registers `quantized_decomposed`, the operators of PT2E; torchao's PT2E registers them so too."""
Module = Callable[..., object]
"""A network that is called with its inputs."""


def bare_module(program: object) -> Callable[..., object]:
    """The module without its own checks.

    Its guards are Python text from the file. Its shape check takes 10 to 30 us of each
    inference, and a GPU only waits in that time.
    """
    module = program.module(check_guards=False)  # type: ignore[attr-defined]
    module.validate_inputs = False
    return cast(Callable[..., object], module)


def moved(program: object, device: str) -> object:
    """The program with weights, constants and tensor factories moved to a device."""
    passes = importlib.import_module("torch.export.passes")
    return cast(object, passes.move_to_device_pass(program, device))


def inputs_of(program: object, execution: Execution) -> tuple[ModelInput, ...]:
    """Inputs of the graph in order, with all sizes; a symbolic first size becomes the batch."""
    signature = program.graph_signature  # type: ignore[attr-defined]
    nodes = {node.name: node for node in program.graph.nodes}  # type: ignore[attr-defined]
    found = []
    for name in signature.user_inputs:
        tensor = nodes[name].meta["val"] if name in nodes else None
        if tensor is None or not hasattr(tensor, "dtype"):
            raise UnsupportedError(
                f"input {name!r} is not a tensor", "export the model with tensor inputs only"
            )
        sizes = tuple(size if type(size) is int else None for size in tensor.shape)
        dtype = str(tensor.dtype).removeprefix("torch.")
        found.append(FoundInput(name=name, sizes=sizes, dtype=dtype))
    return specs_of(found, execution)


class TorchModel:
    """One module and its last output; it fulfils `LoadedModel`."""

    def __init__(
        self,
        torch: ModuleType,
        module: Callable[..., object],
        program: object,
        execution: Execution,
    ) -> None:
        self._torch = torch
        self._module = module
        self._specs = inputs_of(program, execution)
        self.inputs = tuple(as_numpy_has_it(spec) for spec in self._specs)
        self.settings = _settings(torch, execution)
        self._arguments: tuple[object, ...] = ()
        self._output: object = None

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Copies the inputs into the runtime's memory."""
        pairs = zip(arrays, self._specs, strict=True)
        self._arguments = tuple(as_tensor(self._torch, array, spec) for array, spec in pairs)

    def run(self) -> None:
        """Runs one inference; CPU operators are done when the call returns.

        The last output is freed first, as in a loop that does not keep it.
        """
        self._output = None
        with self._torch.inference_mode():
            self._output = self._module(*self._arguments)

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        return as_arrays(self._torch, self._output)


def _settings(torch: ModuleType, execution: Execution) -> Options:
    flush = boolean_option(execution, "flush_denormals", default=False)
    return (
        ("flush_denormals", flush),
        ("inter_op_threads", torch.get_num_interop_threads()),
        ("intra_op_threads", torch.get_num_threads()),
        ("mode", execution.mode.value),
    )


def _with_states(
    torch: ModuleType, module: Callable[..., object], program: object, execution: Execution
) -> LoadedModel:
    from fleetrank.device_agents.runtimes.states import state_pairs
    from fleetrank.device_agents.runtimes.torch_states import TorchStateModel

    specs = inputs_of(program, execution)
    outputs = program.graph_signature.user_outputs  # type: ignore[attr-defined]
    pairs = state_pairs(specs, [str(name) for name in outputs], has_names=False)
    return TorchStateModel(torch, module, specs, pairs, _settings(torch, execution))


class TorchRunner:
    """Modes `eager` and `compile`. Option: `flush_denormals` (default false).

    These apply to the CPU; `GPU_RUNTIMES` has those of a GPU.
    """

    capability = Capability(
        backends=("cpu",),
        modes=frozenset({Mode.EAGER, Mode.COMPILE}),
        option_names=frozenset({"flush_denormals"}),
    )
    library = Library(distribution="torch", module="torch", extra="torch")

    def __init__(self, wrap: Callable[[Module], Module] | None = None) -> None:
        """`wrap` gets the opened module and returns what runs in its place; `None`: itself."""
        self._is_distrustful = False
        self._wrap = wrap

    def version(self) -> str:
        """The version of the runtime's library."""
        return importlib.metadata.version("torch")

    def admit(self, path: str) -> str:
        """Copies what the scan has checked; PyTorch never reads the original file."""
        # Inside the worker's scratch folder, which its parent removes.
        copy = Path(tempfile.mkdtemp(prefix="fleetrank-"), "model.pt2")
        copy_checked(path, copy)
        # A second check, in case the scan missed something: a pickle cannot call any function.
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
        self._is_distrustful = True
        return str(copy)

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact."""
        try:
            torch = importlib.import_module("torch")
            importlib.import_module("torch.export")
            # For every file: the primer is loaded first, so that no model's load contains it.
            importlib.import_module(_QUANTISED_OPERATORS)
        except ImportError as error:
            raise missing_library("torch", "torch", error) from error
        is_gpu = execution.backend == CUDA
        gpu = torch_cuda.TorchGpu(torch)
        if is_gpu:
            gpu.open()
            torch_cuda.configure(torch, execution)
        _configure(torch, execution)
        with _no_foreign_pickles(is_active=self._is_distrustful):
            program, module = _open(torch, path, gpu.device if is_gpu else None)
        if self._wrap is not None:
            module = self._wrap(module)
        if execution.mode is Mode.COMPILE:
            module = _compiled(torch, module)
        if is_gpu:
            specs = inputs_of(program, execution)
            return torch_cuda.TorchCudaModel(torch, gpu, module, specs, execution)
        if has_states(execution):
            return _with_states(torch, module, program, execution)
        return TorchModel(torch, module, program, execution)


def _configure(torch: ModuleType, execution: Execution) -> None:
    torch.set_num_threads(execution.threads)
    # This can be set only once in a process; the primer has done so when the model is loaded.
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)
    flush = boolean_option(execution, "flush_denormals", default=False)
    if not torch.set_flush_denormal(flush) and flush:
        raise UnsupportedError(
            "this CPU cannot flush denormals", "remove the option flush_denormals"
        )


def _open(torch: ModuleType, path: str, device: str | None) -> tuple[object, Callable[..., object]]:
    """The program and its module; moved to a GPU if `device` names one."""
    try:
        program = torch.export.load(path)
        return program, bare_module(program if device is None else moved(program, device))
    except (FleetError, MemoryError):
        raise
    except Exception as error:  # a damaged file can raise anything from KeyError to zlib.error
        text = f"{type(error).__name__}: {error}"
        if is_out_of_memory(error):
            raise MemoryError(text) from error
        if says_device_lost(text):
            raise
        raise BadArtifactError(
            f"PyTorch rejects the file: {text}", "export it again with the PyTorch that runs it"
        ) from error


def _compiled(torch: ModuleType, module: Callable[..., object]) -> Callable[..., object]:
    """Compiles at the first call; a missing C++ compiler raises its error then."""
    compiled = cast(Callable[..., object], torch.compile(module))

    def run(*arguments: object) -> object:
        try:
            return compiled(*arguments)
        except Exception as error:
            if not any(part in type(error).__name__ for part in ("Inductor", "Triton")):
                raise
            raise UnsupportedError(
                f"torch.compile failed: {error}",
                "install a C++ compiler (g++), for a GPU also Triton, or use mode eager",
            ) from error

    return run


_lock = {"is_active": False, "is_installed": False}


@contextmanager
def _no_foreign_pickles(*, is_active: bool) -> Iterator[None]:
    """While active, the interpreter blocks every class or function that a pickle asks for.

    This is the third check; it does not depend on the layout of the file.
    """
    if is_active and not _lock["is_installed"]:
        sys.addaudithook(_refuse_pickle_globals)
        _lock["is_installed"] = True
    _lock["is_active"] = is_active
    try:
        yield
    finally:
        _lock["is_active"] = False


def _refuse_pickle_globals(event: str, arguments: tuple[object, ...]) -> None:
    if event == "pickle.find_class" and _lock["is_active"]:
        raise BadArtifactError(
            f"the file asks for {arguments[0]}.{arguments[1]} while it is loaded",
            "if you trust its maker, run again with `trust=true`",
        )
