"""Whose GPUs a host without an NVIDIA driver has: for an error that helps."""

from pathlib import Path

_NAMES = {"0x1002": "AMD", "0x8086": "Intel"}
"""PCI vendor numbers."""
_NVIDIA = "0x10de"


def other_vendor(root: Path = Path("/")) -> str | None:
    """The maker of this host's GPUs; `None` where an NVIDIA GPU is among them, or none is known."""
    found = {_read(file) for file in (root / "sys/class/drm").glob("card*/device/vendor")}
    if _NVIDIA in found:
        return None
    # A processor's own graphics beside an AMD card is not what anybody wants to measure.
    return next((name for number, name in _NAMES.items() if number in found), None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
