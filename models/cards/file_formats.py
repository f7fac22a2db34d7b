"""Which endings of users' files are understood."""

from collections.abc import Mapping
from pathlib import Path

from fleetrank.models.cards.card import Format

FORMATS_OF_SUFFIX: Mapping[str, Format] = {
    ".onnx": Format.ONNX,
    ".pt2": Format.PT2,
    ".tflite": Format.TFLITE,
    ".pte": Format.PTE,
    ".keras": Format.TFLITE,
    ".h5": Format.TFLITE,
}
"""A user's file runs in its own runtime only; Keras goes through TensorFlow's converter."""


def external_data_names(path: Path) -> tuple[str, str]:
    """What PyTorch and onnx call the external data of a file; no other counts for its identity."""
    return f"{path.name}.data", f"{path.name}_data"
