"""The model whose latency tells whether a phone is still the phone that was registered."""

from fleetrank.models.cards.card import ExportRequest, Format, Weights
from fleetrank.models.cards.zoo import load_cards

CANARY_MODEL = "squeezenet1_1"
"""Small enough for a second of runs on any phone, large enough that clocks and not calls decide."""


def canary_request() -> ExportRequest:
    """What to export to have the canary: LiteRT's tool is the one every phone can have."""
    card = load_cards(None)[CANARY_MODEL]
    return ExportRequest(card=card, weights=Weights(), format=Format.TFLITE)
