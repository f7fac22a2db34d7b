"""PyTorch to a `.pt2` archive, which runs without the model's source code."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Pt2Exporter:
    """`torch.export`."""

    libraries = ("torch",)
    extra = "torch"

    def export(self, network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
        """Writes the `.pt2` archive."""
        import torch

        torch.export.save(torch.export.export(network, (image,)), str(path))
