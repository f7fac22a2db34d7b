"""ONNX Runtime: the CPU provider is here, the GPU providers are in `onnx_cuda`."""

import importlib
import importlib.metadata
import os
from collections.abc import Sequence
from types import ModuleType
from typing import cast

from fleetrank.device_agents.contract.capability import Capability, boolean_option
from fleetrank.device_agents.contract.failures import says_device_lost
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError, missing_library
from fleetrank.device_agents.runtimes.declared_inputs import has_states
from fleetrank.device_agents.runtimes.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.runtimes.onnx import onnx_cuda
from fleetrank.device_agents.runtimes.onnx.onnx_session import (
    Session,
    SessionOptions,
    input_specs,
)
from fleetrank.device_agents.runtimes.runner import Array, Library, LoadedModel
from fleetrank.foundation.errors import FleetError, says_out_of_memory

_UNSUPPORTED_SIGNS = (
    "NOT_IMPLEMENTED", "Could not find an implementation", "is not a registered function/op",
    "No Op registered for",
    "No opset import for domain", "is under development",
)  # fmt: skip
"""Texts with which ONNX Runtime 1.22 to 1.31 reports a missing operator."""


class OnnxModel:
    """One session, its feed and its last outputs; it fulfils `LoadedModel`."""

    def __init__(self, session: Session, execution: Execution, settings: Options) -> None:
        self._session = session
        self.inputs = input_specs(session, execution)
        self.settings = settings
        self._feed: dict[str, Array] = {}
        self._outputs: list[Array] = []

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Keeps the arrays: the CPU provider reads them in place."""
        self._feed = {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}

    def run(self) -> None:
        """Runs one inference.

        The last outputs are freed first, as in a loop that does not keep them. If they were kept
        during the run, buffers in the arena would move: 1 to 3 % for SqueezeNet (onnxruntime 1.31).
        """
        self._outputs = []
        self._outputs = self._session.run(None, self._feed)

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        return [output.copy() for output in self._outputs]


class OnnxRunner:
    """Options: `spinning` (default true), `flush_denormals` (default false).

    These are the options of the CPU; `gpu_backends` has those of a GPU.

    Attributes:
        session: the last session that was opened on a processor; `None` before.
    """

    capability = Capability(
        backends=("cpu",), option_names=frozenset({"spinning", "flush_denormals"})
    )
    library = Library(distribution="onnxruntime", module="onnxruntime", extra="onnx")

    def __init__(self, profile_prefix: str | None = None) -> None:
        """`profile_prefix` starts the path of the profile that a session writes; `None`: none."""
        self._profile_prefix = profile_prefix
        self.session: Session | None = None

    def version(self) -> str:
        """The version of the runtime's library."""
        try:
            return importlib.metadata.version("onnxruntime")
        except importlib.metadata.PackageNotFoundError:
            return importlib.metadata.version("onnxruntime-gpu")

    def admit(self, path: str) -> str:
        """Accepts every file: an ONNX file contains no code."""
        return path

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact."""
        # Since 1.31 its thread reports models to its maker and writes into the user's cache folder.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            ort = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise missing_library("onnxruntime", "onnx", error) from error
        spinning = boolean_option(execution, "spinning", default=True)
        flush = boolean_option(execution, "flush_denormals", default=False)
        options = _session_options(ort, execution.threads, spinning=spinning, flush=flush)
        if self._profile_prefix is not None:
            options.enable_profiling = True
            options.profile_file_prefix = self._profile_prefix
        if execution.backend in GPU_BACKENDS:
            try:
                return onnx_cuda.load(ort, path, options, execution)
            except Exception as error:
                raise _as_agent_error(error) from error
        try:
            opened = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise _as_agent_error(error) from error
        self.session = session = cast(Session, opened)
        settings: Options = (
            ("flush_denormals", flush),
            ("graph_optimization", "all"),
            ("inter_op_threads", 1),
            ("intra_op_threads", execution.threads),
            ("spinning", spinning),
        )
        if has_states(execution):
            return _with_states(ort, session, execution, settings)
        return OnnxModel(session, execution, settings)


def _with_states(
    ort: ModuleType, session: Session, execution: Execution, settings: Options
) -> LoadedModel:
    from fleetrank.device_agents.runtimes.onnx.onnx_states import OnnxStateModel

    return OnnxStateModel(ort, session, execution, settings)


def _session_options(
    ort: ModuleType, threads: int, *, spinning: bool, flush: bool
) -> SessionOptions:
    options = cast(SessionOptions, ort.SessionOptions())
    # With the value 0, the pool takes all cores and sets its own affinity.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    options.add_session_config_entry("session.set_denormal_as_zero", str(int(flush)))
    return options


def _as_agent_error(error: Exception) -> FleetError | Exception:
    """ONNX Runtime's exceptions have no common class; their module identifies them."""
    if not type(error).__module__.startswith("onnxruntime"):
        return error
    text = str(error)
    if says_out_of_memory(text):
        return MemoryError(text)
    if says_device_lost(text):
        return error
    if any(sign in text for sign in _UNSUPPORTED_SIGNS):
        return UnsupportedError(
            f"ONNX Runtime cannot execute the file: {text}",
            "export it with an older opset, or use a newer ONNX Runtime",
        )
    return BadArtifactError(
        f"ONNX Runtime rejects the file: {text}", "export it again, or check where it comes from"
    )
