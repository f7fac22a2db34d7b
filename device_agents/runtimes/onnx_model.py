"""A model that ONNX Runtime has loaded: it runs it and returns its outputs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.runtimes.onnx_session import input_specs

if TYPE_CHECKING:
    from onnxruntime import InferenceSession as Session


class OnnxModel:
    """One session, its feed and its last outputs."""

    def __init__(self, session: "Session", execution: Execution, settings: Options) -> None:
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
