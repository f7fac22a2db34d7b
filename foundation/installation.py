"""Which host this is, and which versions of packages are installed on it."""

import hashlib
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_MACHINE_ID = Path("/etc/machine-id")
PACKAGES = (
    "ai-edge-litert", "litert-torch", "numpy", "onnx", "onnxruntime", "onnxscript", "polars",
    "ray", "tensorflow-cpu", "timm", "torch", "torchvision",
)  # fmt: skip
"""Packages used for exporting, measuring or storing."""


@cache
def host_hash() -> str:
    """First 12 hexadecimal digits of the sha256 over host name and machine id.

    Rows never contain names or serial numbers: results are shared, names are private.
    """
    try:
        machine_id = _MACHINE_ID.read_text(encoding="ascii").strip()
    except OSError:
        machine_id = ""
    return hashlib.sha256(f"{platform.node()}\n{machine_id}".encode()).hexdigest()[:12]


def package_versions(names: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of the installed packages; does not import them."""
    from importlib import metadata  # slow to import, and few commands need it

    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
