"""PyTorch to ONNX."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class OnnxExporter:
    """Uses the dynamo exporter; the weights are stored inside the file."""

    libraries = ("onnx", "onnxscript", "torch")
    extra = "onnx,torch"

    def export(self, network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
        """Writes the `.onnx` file."""
        import torch

        torch.onnx.export(
            network, (image,), str(path), dynamo=True, external_data=False, verbose=False
        )
