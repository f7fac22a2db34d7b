"""PyTorch to ONNX."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class OnnxExporter:
    """The dynamo exporter; weights inside the one file."""

    libraries = ("onnx", "onnxscript", "torch")
    extra = "onnx,torch"

    def export(self, network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
        """See `Exporter.export`."""
        import torch

        torch.onnx.export(
            network, (image,), str(path), dynamo=True, external_data=False, verbose=False
        )
