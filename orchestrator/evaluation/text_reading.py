"""How a text is read: with which strategy, in which windows, and what goes from one to the next."""

from dataclasses import dataclass, replace

import numpy as np

from fleetrank.foundation.workload import Workload, WorkloadKind
from fleetrank.models.cards.card import ExportRequest
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.cards.language_card import why_not_workload
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.evaluation_rows import EvalRun
from fleetrank.orchestrator.evaluation.scoring import Array
from fleetrank.orchestrator.evaluation.text_windows import STRATEGIES
from fleetrank.orchestrator.evaluation.user_data import Tokenizer

USUAL_WINDOW = 1024
"""Tokens of a window, if the model's context is not shorter: longer ones take much memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a text is read.

    Attributes:
        window: tokens that the model reads at once; `None` chooses.
        stride: new tokens in each window; `None` takes that of the strategy.
        segment: workload of a strategy with a memory, which needs one; `None` for all others.
    """

    tokenizer: Tokenizer
    strategy: str = "vanilla"
    window: int | None = None
    stride: int | None = None
    segment: Workload | None = None

    @property
    def strategy_name(self) -> str:
        """The strategy, with the sizes of its memory if it has one, such as `hmt+k8+n16`."""
        one = self.segment
        return self.strategy if one is None else f"{self.strategy}+k{one.sensory}+n{one.memories}"


def refuse_misread(reading: Reading) -> None:
    """Refuses a memory without its sizes, and sizes that a strategy does not have.

    Raises:
        UsageError: as above.
    """
    has_memory, segment = STRATEGIES[reading.strategy].has_memory, reading.segment
    if has_memory and segment is None:
        raise UsageError(
            f"strategy {reading.strategy} needs the length of a segment",
            "add `segment=64`, or with the sizes of its memory `segment=64+k8+n16`",
        )
    if not has_memory and segment is not None:
        raise UsageError(
            f"strategy {reading.strategy} has no segments", "choose `strategy=hmt`, or a window"
        )
    if has_memory and (reading.window is not None or reading.stride is not None):
        raise UsageError(
            f"strategy {reading.strategy} reads segment after segment, without a window or stride",
            "give only the length of a segment",
        )


def fitting(run: EvalRun, reading: Reading) -> tuple[LanguageShape, Workload]:
    """The numbers of the decoder, and what it computes of each window.

    Raises:
        UsageError: the model is not a decoder, or its context is too short.
    """
    card = run.subject.model.card
    usual = USUAL_WINDOW if card.language is None else min(USUAL_WINDOW, card.language.context)
    workload = Workload(kind=WorkloadKind.SCORE, length=reading.window or usual)
    if reading.segment is not None:
        workload = replace(reading.segment, kind=WorkloadKind.SCORE)
    reason = why_not_workload(card, workload)
    if reason is not None or card.language is None:
        raise UsageError(str(reason), "give a decoder of text, or a shorter window")
    return card.language, workload


def first_states(request: ExportRequest, prefix: int) -> tuple[Array, ...]:
    """At the start of a document: tokens before it are the prefix, and memories are empty.

    Empty for a model without a memory.
    """
    if request.workload.memories is None:
        return ()
    states = (one for one in request.inputs if one.state is not None)
    values = ((one, 0 if one.dtype == "float32" else prefix) for one in states)
    return tuple(np.full(one.shape, value, one.dtype) for one, value in values)
