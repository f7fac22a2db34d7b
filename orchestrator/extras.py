"""The optional libraries: which extra of the package installs each."""

import importlib.util
from collections.abc import Mapping

from fleetrank.device_agents.errors import MissingLibraryError

EXTRA_OF: Mapping[str, str] = {
    "adbutils": "android",
    "duckdb": "analysis",
    "ai_edge_litert": "tflite",
    "executorch": "executorch",
    "fastapi": "server",
    "jinja2": "report",
    "litert_torch": "tflite",
    "markupsafe": "report",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "torch",
    "pyarrow": "analysis",
    "pynvml": "cuda",
    "ray": "cluster",
    "ruptures": "analysis",
    "tensorflow": "tensorflow",
    "timm": "torch",
    "torch": "torch",
    "torchvision": "torch",
    "uvicorn": "server",
    "vl_convert": "report",
}
"""Module to extra; `google.protobuf` comes with `onnx`."""


def is_installed(module: str) -> bool:
    """Whether a library can be found; it is not imported."""
    return importlib.util.find_spec(module) is not None


def require_libraries(purpose: str, extra: str, *modules: str) -> None:
    """Checks that libraries are installed before they are imported.

    Args:
        purpose: what needs them, for the message: `the page`.
        extra: the extra that installs all of them.
        modules: top-level modules.

    Raises:
        MissingLibraryError: one is not installed; the remedy names the extra.
    """
    if missing := [name for name in modules if not is_installed(name)]:
        raise MissingLibraryError(
            f"{purpose} needs {', '.join(missing)}, not installed",
            f"pip install 'fleetrank[{extra}]'",
        )


def missing_library(error: ModuleNotFoundError) -> MissingLibraryError | None:
    """What a failed import means to a user; `None` if no extra installs the module."""
    name = (error.name or "").partition(".")[0]
    if name not in EXTRA_OF:
        return None
    return MissingLibraryError(
        f"this needs {name}, not installed", f"pip install 'fleetrank[{EXTRA_OF[name]}]'"
    )
