"""Weights of an ONNX model in a second file: protobuf reads at most 2 GiB at once.

The second file is named by its own sha256, and the model names it. So the model's sha256 also
stands for the weights.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.small_file import file_sha256

if TYPE_CHECKING:
    import onnx

LARGEST_BYTES = 2_000_000_000
"""Weights up to this size are stored in the model; protobuf's limit is 2^31 - 1 for the whole."""
SUFFIX = ".data"


def aside_name(path: Path) -> str:
    """The name under which exporters first write the weights of a model."""
    return f"{path.name}{SUFFIX}"


def name_weights(path: Path) -> None:
    """Renames the weights beside a model to `SHA256.data`, also in the model; if there are any."""
    import onnx

    aside = path.with_name(aside_name(path))
    if not aside.is_file():
        return
    name = f"{file_sha256(aside)}{SUFFIX}"
    model = onnx.load(str(path), load_external_data=False)
    for tensor in _outside(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
    path.write_bytes(model.SerializeToString())
    aside.rename(path.with_name(name))


def save_model(model: "onnx.ModelProto", path: Path) -> None:
    """Writes a model; its weights into a second file if they are too large for one."""
    import onnx

    is_large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > LARGEST_BYTES
    onnx.save(model, str(path), save_as_external_data=is_large, location=aside_name(path))
    name_weights(path)


def weights_beside(path: Path) -> Path | None:
    """The second file of a staged model; `None` if it is one file."""
    return next(path.parent.glob(f"*{SUFFIX}"), None)


def _outside(model: "onnx.ModelProto") -> Iterator["onnx.TensorProto"]:
    import onnx

    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor
