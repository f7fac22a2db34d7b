"""The contract of an exporter, and the table of exporters."""

import importlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.errors import ExportError

if TYPE_CHECKING:
    import torch

EXPORTERS: Mapping[Format, str] = {
    Format.ONNX: "fleetrank.models.export.onnx_exporter:OnnxExporter",
    Format.PT2: "fleetrank.models.export.pt2_exporter:Pt2Exporter",
    Format.TFLITE: "fleetrank.models.export.tflite_exporter:TfliteExporter",
    Format.PTE: "fleetrank.models.export.executorch_exporter:ExecutorchExporter",
}


class Exporter(Protocol):
    """Writes a network as one self-contained file of one format."""

    libraries: tuple[str, ...]
    """Distributions that the export uses; their versions are stored with the file."""
    extra: str
    """The extra to install if a distribution is missing: `fleetrank[EXTRA]`."""

    def export(self, network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
        """Exports for inputs of exactly the shape of `image`, (batch, 3, height, width).

        Raises the library's exceptions; the caller converts them to an `ExportError`.
        """


def create_exporter(format: Format) -> Exporter:  # noqa: A002 - the word of the data class
    """The exporter of a format; it imports its libraries when it exports."""
    module_name, _, class_name = EXPORTERS[format].partition(":")
    exporter: Exporter = getattr(importlib.import_module(module_name), class_name)()
    return exporter


def library_versions(libraries: tuple[str, ...], extra: str) -> tuple[tuple[str, str], ...]:
    """(name, version) of installed distributions, sorted by name.

    Raises:
        ExportError: a distribution is not installed; the remedy names the extra.
    """
    try:
        return tuple(sorted((name, metadata.version(name)) for name in libraries))
    except metadata.PackageNotFoundError as error:
        raise ExportError(
            f"{error.name} is not installed", f"pip install 'fleetrank[{extra}]'"
        ) from error
