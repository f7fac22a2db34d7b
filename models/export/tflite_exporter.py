"""PyTorch to TFLite."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class TfliteExporter:
    """Uses litert-torch; input and output keep PyTorch's layout (channels first)."""

    libraries = ("litert-converter", "litert-torch", "torch")
    extra = "tflite"

    def export(self, network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
        """Writes the `.tflite` file."""
        import litert_torch

        litert_torch.convert(network, (image,)).export(str(path))
