"""Which endings of users' files are understood."""

from collections.abc import Mapping

from models.types import Format

FORMATS_OF_SUFFIX: Mapping[str, Format] = {
    ".onnx": Format.ONNX,
    ".pt2": Format.PT2,
    ".tflite": Format.TFLITE,
    ".pte": Format.PTE,
    ".keras": Format.TFLITE,
    ".h5": Format.TFLITE,
}
"""A user's file runs in its own runtime only; Keras goes through TensorFlow's converter."""
