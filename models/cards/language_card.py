"""The card of a built-in decoder or encoder of text, and the workloads that a card answers."""

from fleetrank.foundation.vocabulary import Family, Format, Precision
from fleetrank.foundation.workload import Workload, WorkloadKind
from fleetrank.models.cards.card import ExportRequest, ModelCard, Source
from fleetrank.models.cards.language import LanguageShape, language_inputs


def language_card(name: str, family: Family, shape: LanguageShape) -> ModelCard:
    """The card of a decoder or encoder of text: its inputs and workloads follow from its shape."""
    return ModelCard(
        name=name,
        family=family,
        source=Source.LANGUAGE,
        entry=name,
        input_size=None,
        has_attention=True,
        inputs=language_inputs(shape),
        workloads=shape.workloads,
        language=shape,
    )


def is_own_decoder(card: ModelCard) -> bool:
    """Whether the network is the built-in decoder of text."""
    return card.language is not None and not card.language.is_encoder


def why_not_workload(card: ModelCard, workload: Workload) -> str | None:
    """The reason why the network has no such inference; `None` if it has.

    Every built-in decoder also has `segment`, and `score`, which is never measured.
    """
    if workload.kind is WorkloadKind.SCORE and not is_own_decoder(card):
        return f"{card.name} is not a decoder of fleetrank's, so it cannot score text"
    if workload.kind is WorkloadKind.SEGMENT and not is_own_decoder(card):
        return f"{card.name} is not a decoder of fleetrank's, so it has no memory for {workload}"
    # `why_not_trained` decides on steps of training.
    others = (WorkloadKind.SCORE, WorkloadKind.SEGMENT, WorkloadKind.TRAIN)
    if card.workloads and workload.kind not in (*card.workloads, *others):
        more = (WorkloadKind.SEGMENT, WorkloadKind.TRAIN) if is_own_decoder(card) else ()
        return f"{card.name} answers {', '.join((*card.workloads, *more))}, not {workload}"
    longest = None if card.language is None else card.language.context
    length = workload.context_tokens or workload.length
    if longest is not None and length is not None and length > longest:
        what = "the window" if workload.kind is WorkloadKind.SCORE else workload
        return f"{card.name} has a context of {longest:,} tokens, and {what} needs {length:,}"
    return None


def why_not_trained(request: ExportRequest) -> str | None:
    """The reason why this step of training cannot be exported; `None` if it can, or is not asked.

    Only `.pt2` files change their own weights: the other formats have no backward operators.
    """
    card, workload = request.card, request.workload
    if workload.kind is not WorkloadKind.TRAIN:
        return None
    shape, length = card.language, workload.length
    reasons = {
        f"{card.name} is a file without gradients: a network is trained, not its export": (
            card.source is Source.FILE
        ),
        f"{card.name} has no loss: steps of training are of image classifiers and decoders": (
            bool(card.inputs) and (shape is None or shape.is_encoder)
        ),
        f"{card.name} takes tokens: {workload} must say how many, such as {workload}x128": (
            shape is not None and length is None
        ),
        f"{card.name} takes images, and {workload} is a step on tokens": (
            shape is None and length is not None
        ),
        f"{workload} is not exported to {request.format}: only torch runs a step of training": (
            request.format is not Format.PT2
        ),
        f"{workload} is exported in fp32 only, not in {request.precision}": (
            request.precision != Precision.FP32
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
