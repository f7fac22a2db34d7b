"""The runtime `reference`: ONNX's reference implementation, in NumPy."""

import importlib
import importlib.metadata
from collections.abc import Sequence
from typing import Any

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.runtime import Array, Library, LoadedModel
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import BadArtifactError, missing_library
from fleetrank.foundation.inputs import ModelInput


class ReferenceModel:
    """One graph; it fulfils `LoadedModel`."""

    settings: Options = ()

    def __init__(self, evaluator: Any) -> None:
        self._evaluator = evaluator
        self._feeds: dict[str, Array] = {}
        self._outputs: list[Array] = []
        self.inputs = tuple(
            ModelInput(
                name=name,
                shape=tuple(size.dim_value for size in kind.tensor_type.shape.dim),
                dtype="float32",
            )
            for name, kind in zip(evaluator.input_names, evaluator.input_types, strict=True)
        )

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Keeps the arrays."""
        names = (spec.name for spec in self.inputs)
        self._feeds = dict(zip(names, arrays, strict=True))

    def run(self) -> None:
        """Runs one inference; the output can be read when this returns."""
        self._outputs = self._evaluator.run(None, self._feeds)

    def outputs(self) -> list[Array]:
        """The outputs of the last run."""
        return list(self._outputs)


class ReferenceRunner:
    """Backend `numpy`. It has no options."""

    format = "onnx"
    capability = Capability(backends=("numpy",))
    library = Library(distribution="onnx", module="onnx.reference", extra="onnx")

    def version(self) -> str:
        """The version of the runtime's library."""
        return importlib.metadata.version("onnx")

    def admit(self, path: str) -> str:
        """Accepts every file: an ONNX graph contains no code."""
        return path

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact."""
        try:
            library = importlib.import_module("onnx.reference")
        except ImportError as error:
            raise missing_library("onnx", "onnx", error) from error
        try:
            return ReferenceModel(library.ReferenceEvaluator(path))
        except Exception as error:
            raise BadArtifactError(f"onnx rejects the file: {error}", "export it again") from error
