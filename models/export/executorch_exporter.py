"""PyTorch to an ExecuTorch program (`.pte`)."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class ExecutorchExporter:
    """`torch.export`, lowered to XNNPACK; other operators use ExecuTorch's own kernels."""

    libraries = ("executorch", "torch")
    extra = "executorch"

    def export(self, network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
        """Writes the `.pte` program."""
        import torch
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        lowered = to_edge_transform_and_lower(
            torch.export.export(network, (image,)), partitioner=[XnnpackPartitioner()]
        )
        with path.open("wb") as file:
            lowered.to_executorch().write_to_file(file)
