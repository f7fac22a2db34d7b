"""PyTorch to a `.pt2` archive, which runs without the source of the model."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Pt2Exporter:
    """`torch.export`."""

    libraries = ("torch",)
    extra = "torch"

    def export(self, network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
        """See `Exporter.export`."""
        import torch

        torch.export.save(torch.export.export(network, (image,)), str(path))
