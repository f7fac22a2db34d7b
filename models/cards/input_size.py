"""The axis `input_size` of a sweep: networks of images at another height and width."""

from dataclasses import replace

from fleetrank.foundation.inputs import Axes
from fleetrank.models.cards.card import ModelCard, ResolvedCard, Source

INPUT_SIZE = "input_size"
"""The axis: height and width of the images, in pixels."""
_LARGEST = 4096
"""As in a card."""


def takes_images(card: ModelCard) -> bool:
    """Whether a sweep's axis `input_size` concerns the model: its inputs are not stated otherwise.

    It does concern a user's file, which is then skipped with the reason.
    """
    is_stated = bool(card.inputs) or bool(card.workloads)
    return not is_stated and (card.input_size is not None or card.source is Source.FILE)


def why_not_size(card: ModelCard, axes: Axes) -> str | None:
    """The reason why a model cannot take images of the size in `axes`; `None` if none is known.

    A network may still refuse the size when it is exported, such as one too small for its layers.
    """
    size = dict(axes).get(INPUT_SIZE)
    if size is None or not takes_images(card):
        return None
    if card.source is Source.FILE:
        return (
            f"{card.name} is a file, which has its size: export it at {size} pixels, and give that "
            "file its own card"
        )
    if not 0 < size <= _LARGEST:
        return f"input_size {size} is not from 1 to {_LARGEST} pixels"
    if card.is_fixed_size and size != card.input_size:
        return f"{card.name} takes images of {card.input_size} pixels only"
    return None


def sized_for(model: ResolvedCard, axes: Axes) -> tuple[ResolvedCard, Axes]:
    """The model for images of the size in `axes`, and the axes that its export needs.

    Accuracy and MACs that a card states are those of its size. At another one accuracy is not
    known, and the export counts the MACs. At its own size the export is the one of other sweeps;
    an entry point keeps the axis, because it may return inputs of any size.
    """
    card, size = model.card, dict(axes).get(INPUT_SIZE)
    if size is None or not takes_images(card) or why_not_size(card, axes) is not None:
        return model, axes
    if size == card.input_size:
        return model, axes if card.source is Source.ENTRY_POINT else ()
    at_size = replace(card, input_size=size, macs=None, accuracy_top1=None, accuracy_source=None)
    return replace(model, card=at_size, sized_from=card), axes
