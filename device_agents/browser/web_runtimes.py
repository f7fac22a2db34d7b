"""The runtimes of a page: ONNX Runtime Web and LiteRT.js; only a browser has them.

Their entry points make their names known to sweeps; a host cannot load a file with them.
"""

from dataclasses import replace

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.runtime import Library, LoadedModel
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.formats import FileFacts
from fleetrank.foundation.vocabulary import Format, Runtime
from fleetrank.foundation.workload import WorkloadKind

ONNX_WEB, LITERT_WEB = Runtime("onnx-web"), Runtime("litert-web")
BACKENDS = ("wasm", "webgpu")
_WHERE = "in a browser tab"
_KINDS = frozenset({WorkloadKind.IMAGE, WorkloadKind.ENCODE})


class OnnxWeb:
    """ONNX Runtime Web, as `page/worker.js` calls it."""

    format = Format.ONNX.value
    capability = Capability(backends=BACKENDS, place=_WHERE)
    library = Library(distribution="onnxruntime-web", module="fleetrank")

    def version(self) -> str:
        """Each page says its own."""
        raise _only_there("has no version of it")

    def admit(self, path: str) -> str:
        """Nothing is opened here: the browser's sandbox is the wall."""
        return path

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """A host has no such runtime."""
        raise _only_there(f"cannot load {path} with {execution.runtime}")

    def describe(self, path: str) -> FileFacts:
        """The format is fleetrank's own."""
        raise _only_there(f"cannot describe {path}")


class LitertWeb(OnnxWeb):
    """LiteRT.js; with threads it hung in a worker (2.5.3), so it gets one."""

    format = Format.TFLITE.value
    library = Library(distribution="@litertjs/core", module="fleetrank")


_RUNNERS = {ONNX_WEB: OnnxWeb, LITERT_WEB: LitertWeb}


def why_unsupported(execution: Execution) -> str | None:
    """Says why a tab cannot execute this, or `None`."""
    runner = _RUNNERS.get(execution.runtime)
    if runner is None:
        known = " and ".join(_RUNNERS)
        return f"a browser runs {known}, not {execution.runtime}"
    if execution.threads > 1 and (runner is LitertWeb or execution.backend != "wasm"):
        return f"{execution.runtime} on {execution.backend} runs with one thread in a browser"
    if execution.affinity is not None:
        return "a browser cannot be pinned to cores"
    if execution.is_profiled or execution.replicas is not None:
        return "a browser runs one plain inference after the other"
    if execution.workload.kind not in _KINDS or any(one.state for one in execution.inputs):
        return f"a browser makes single passes without a state, no {execution.workload.kind}"
    return runner.capability.why_unsupported(execution, execution.runtime, _WHERE)


def in_a_tab(canary: MeasureTask) -> MeasureTask:
    """The task of the canary, which names the TFLite of hosts, for a tab; others as they are."""
    if canary.execution.runtime is not Runtime.TFLITE:
        return canary
    execution = replace(canary.execution, runtime=LITERT_WEB, backend="wasm", affinity=None)
    return replace(canary, execution=execution)


def _only_there(what: str) -> UnsupportedError:
    return UnsupportedError(f"this host {what}: it runs {_WHERE}", "register a browser")
