"""A tiny network per format, which a worker runs first.

The model's figures then exclude the runtime's lazy imports and memory pools.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.vocabulary import Family, Format
from fleetrank.models.cards.card import ExportRequest, ModelCard, Source, Weights
from fleetrank.models.cards.identity import resolve
from fleetrank.models.cards.zoo import load_zoo

if TYPE_CHECKING:
    import torch

CANARY_MODEL = "squeezenet1_1"
"""Small: many runs a second on any phone. Large: the clock rate dominates, not call overhead."""


def canary_request() -> ExportRequest:
    """The export request of the canary; TFLite, because LiteRT's tool runs on every phone."""
    model = resolve(load_zoo()[CANARY_MODEL])
    return ExportRequest(model=model, weights=Weights(), format=Format.TFLITE)


_FILES = Path(__file__).parent
"""Holds `primer.onnx`, without metadata, and `primer.tflite`: `make_network` below with seeded
weights, exported with torch 2.13, onnx 1.23 and litert-torch 0.10."""
PRIMER = ModelCard(
    name="primer",
    family=Family.STANDARD_CNN,
    source=Source.ENTRY_POINT,
    entry="fleetrank.models.networks.primer:make_network",
    input_size=16,
)


def make_network() -> "torch.nn.Module":
    """One small convolution and a linear layer: operators of nearly every network."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 10),
    )


@cache
def primer_request(format: Format) -> ExportRequest:  # noqa: A002 - the word of the data class
    """The export request of a format's primer.

    ONNX and TFLite have it as a file: they need no PyTorch and no converter. The other formats
    belong to a version of their runtime.
    """
    file = _FILES / f"primer.{format}"
    is_file = format in {Format.ONNX, Format.TFLITE}
    card = replace(PRIMER, source=Source.FILE, entry=str(file)) if is_file else PRIMER
    return ExportRequest(model=resolve(card), weights=Weights(), format=format)
