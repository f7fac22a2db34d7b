"""Backends that a plug-in of ONNX Runtime adds: `plugin:NAME`."""

import re
from dataclasses import dataclass

PLUGIN = "plugin:NAME"
"""How messages write the backend of a plugin for ONNX Runtime."""
_PLUGIN = re.compile(r"plugin:([a-z0-9][a-z0-9_-]{0,40})(?::(cpu|gpu|npu))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A provider of ONNX Runtime that is a separate Python package.

    A plugin is code. A sweep can name only what is installed under a name that begins with
    `onnxruntime`, never a path.

    Attributes:
        packages: the modules that can hold it, the makers' usual name first.
        unit: the kind of hardware; `None` if the plugin offers one device.
    """

    packages: tuple[str, ...]
    unit: str | None


def plugin_of(backend: str) -> Plugin | None:
    """The plugin of a backend `plugin:NAME` or `plugin:NAME:npu`; `None` for every other one."""
    named = _PLUGIN.fullmatch(backend)
    if named is None:
        return None
    name = named[1].replace("-", "_")
    return Plugin(packages=(f"onnxruntime_ep_{name}", f"onnxruntime_{name}"), unit=named[2])
