"""Plugins: providers in packages of their own (ONNX Runtime 1.23 and newer)."""

import importlib
import importlib.metadata
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.failures import says_device_lost
from fleetrank.device_agents.contract.plugin_backends import Plugin
from fleetrank.device_agents.contract.runtime import Placed
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import MissingLibraryError, UnsupportedError
from fleetrank.device_agents.runtimes.onnx_cuda import RECORD_ASSIGNMENT
from fleetrank.device_agents.runtimes.onnx_model import OnnxModel
from fleetrank.foundation.errors import FleetError, is_out_of_memory, says_out_of_memory

if TYPE_CHECKING:
    from onnxruntime import InferenceSession as Session
    from onnxruntime import OrtEpDevice as Device
    from onnxruntime import SessionOptions


class OnnxPluginModel(OnnxModel):
    """A session whose nodes run in a plugin; it fulfils `PlacedModel`."""

    def __init__(
        self, session: "Session", execution: Execution, settings: Options, placed: Placed
    ) -> None:
        super().__init__(session, execution, settings)
        self.placed = placed
        self._backend = execution.backend

    def run(self) -> None:
        """Runs one inference.

        Raises:
            UnsupportedError: the plugin took nodes that it cannot run.
        """
        try:
            super().run()
        except Exception as error:
            taken = f"took {self.placed.backend_nodes} of {self.placed.graph_nodes} nodes"
            raise _plugin_error(error, f"{self._backend} {taken} and cannot run them") from error


def load_plugin(
    ort: ModuleType, path: str, options: "SessionOptions", execution: Execution, plugin: Plugin
) -> OnnxPluginModel:
    """Loads a file for a plugin, which must take at least one node.

    Raises:
        UnsupportedError: no such device, or no node of the file runs on it.
    """
    backend = execution.backend
    package = next((name for name in plugin.packages if find_spec(name) is not None), None)
    if package is None:
        names = " or ".join(name.replace("_", "-") for name in plugin.packages)
        raise MissingLibraryError(
            f"backend {backend} needs {names}, not installed",
            f"pip install the maker's package beside fleetrank, {names}",
        )
    if not hasattr(ort.InferenceSession, "get_provider_graph_assignment_info"):
        raise UnsupportedError(
            f"onnxruntime {ort.__version__} does not say which nodes run in a plugin",
            "pip install --upgrade onnxruntime",
        )
    options.add_session_config_entry(RECORD_ASSIGNMENT, "1")
    try:
        device = _plugin_device(_plugin_devices(ort, package), execution.backend, plugin.unit)
        options.add_provider_for_devices([device], {})
        session = ort.InferenceSession(path, options, enable_fallback=0)
    except Exception as error:
        raise _plugin_error(error, f"{backend} cannot load the file") from error
    counts = [
        (part.ep_name, len(part.get_nodes()))
        for part in session.get_provider_graph_assignment_info()
    ]
    placed = Placed(
        backend_nodes=sum(count for name, count in counts if name == device.ep_name),
        graph_nodes=sum(count for _name, count in counts),
    )
    if not placed.backend_nodes:
        raise UnsupportedError(
            f"{backend} runs 0 of {placed.graph_nodes} nodes of this file",
            "the plugin's messages on standard error may say which operators it lacks; measure the "
            "file with another backend",
        )
    settings: Options = (
        ("graph_optimization", "all"),
        ("intra_op_threads", execution.threads),
        ("plugin", package),
        ("plugin_device", f"{device.ep_name} {_unit(device)} {device.device.vendor}"),
        ("plugin_version", device.ep_metadata.get("version", "")),
    )
    return OnnxPluginModel(session, execution, settings, placed)


@cache
def _plugin_devices(ort: ModuleType, package: str) -> "tuple[Device, ...]":
    """The devices that the plugin adds; ONNX Runtime registers a library once in a process."""
    module = importlib.import_module(package)
    path = getattr(module, "get_library_path", None) or getattr(module, "library_path", None)
    if path is None:
        raise UnsupportedError(
            f"{package} has no function get_library_path, so it is not a plugin for ONNX Runtime",
            "update the package, or name another one",
        )
    before = {device.ep_name for device in ort.get_ep_devices()}
    ort.register_execution_provider_library(package, str(path()))
    return tuple(device for device in ort.get_ep_devices() if device.ep_name not in before)


def _plugin_device(found: "Sequence[Device]", backend: str, unit: str | None) -> "Device":
    fitting = [device for device in found if unit in (None, _unit(device))]
    units = sorted({_unit(device) for device in found})
    if not fitting:
        raise UnsupportedError(
            f"{backend} finds no device: the plugin offers {', '.join(units) or 'none'}",
            "check the driver, or name a kind of device that the plugin offers",
        )
    if unit is None and len(units) > 1:
        raise UnsupportedError(
            f"{backend} offers several devices: {', '.join(units)}",
            f"name one, such as {backend}:{units[-1]}",
        )
    return fitting[0]


def _unit(device: "Device") -> str:
    name: str = device.device.type.name
    return name.lower()


def _plugin_error(error: Exception, what: str) -> Exception:
    """The error of a file; one of memory or of a lost device stays as it is."""
    text = str(error)
    if isinstance(error, FleetError) or is_out_of_memory(error) or says_device_lost(text):
        return error
    if says_out_of_memory(text):
        return MemoryError(text)
    return UnsupportedError(
        f"{what}: {text}", "update the plugin, or measure the file with another backend"
    )
