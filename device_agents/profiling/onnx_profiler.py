"""ONNX Runtime: its own profile of the kernels, joined to the modules that the file names."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from fleetrank.device_agents.contract.kernel_profile import Kernel
from fleetrank.device_agents.contract.runtime import LoadedModel
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.device_agents.profiling.onnx_events import OnnxEvent, runs_of
from fleetrank.device_agents.profiling.onnx_graph import read_graph
from fleetrank.device_agents.profiling.onnx_modules import NamedNodes
from fleetrank.device_agents.runtimes.onnx_runner import OnnxRunner
from fleetrank.foundation.errors import failing_as


class OnnxProfiler:
    """It fulfils `Profiler`. The worker's parent removes the folder of the profile."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="fleetrank-profile-")
        self.runner = OnnxRunner(profile_prefix=str(Path(folder, "ort")))
        self._nodes = NamedNodes.of([])

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact and the names of its modules."""
        model = self.runner.load(path, execution)
        self._nodes = NamedNodes.of(read_graph(Path(path)))
        return model

    def last_runs(self, count: int) -> list[list[Kernel]]:
        """Ends the profile and joins the kernels of the last runs to modules."""
        session = self.runner.session
        if session is None:
            raise BadOutputError("no model is loaded", "load one before")
        remedy = "free space in the temporary folder"
        with failing_as(BadOutputError, "ONNX Runtime's profile cannot be read", remedy):
            text = Path(session.end_profiling()).read_text(encoding="utf-8")
        return [_joined(run, self._nodes) for run in runs_of(text)[-count:]]


def _joined(run: Sequence[OnnxEvent], nodes: NamedNodes) -> list[Kernel]:
    scopes = nodes.scopes_of([(event.kernel, event.operator) for event in run])
    return [
        Kernel(
            node=event.kernel,
            module=None if scope is None else scope.module,
            operator=event.operator,
            kernel_ns=event.ns,
            source_operator=None if scope is None or is_inserted else scope.operator,
            is_inserted=is_inserted,
            output_bytes=event.output_bytes,
            weight_bytes=event.weight_bytes,
        )
        for event, (scope, is_inserted) in zip(run, scopes, strict=True)
    ]
