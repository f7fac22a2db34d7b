"""What the inferences of a language model cost, for devices that execute no file."""

from functools import lru_cache

from fleetrank.device_agents.contract.task import Execution, TokenCost
from fleetrank.foundation.formats import format_of
from fleetrank.foundation.vocabulary import INTEGERS, WEIGHT_BYTES, FlopsMethod, Format
from fleetrank.foundation.workload import WorkloadKind
from fleetrank.models.cards.card import LANGUAGE_RECIPES, SCALE_BYTES, Artifact, Cost, ExportRequest
from fleetrank.models.cards.language import LanguageShape
from fleetrank.models.networks.known_cost import known_cost
from fleetrank.models.networks.language_cost import VALUE_BYTES, call_cost, calls_of

_USUAL_BYTES = 4
"""Of a value in a precision that does not store weights and cache in one type: caches are fp32."""


def cost_without_file(request: ExportRequest) -> Cost | None:
    """The cost of one inference as far as the card states it; `None` if an export must count it."""
    shape, calls = request.card.language, calls_of(request.workload)
    if shape is None or not calls or request.workload.kind is WorkloadKind.TRAIN:
        return known_cost(request.card, request.workload)
    sample = call_cost(shape, calls[-1])
    return Cost(macs=sample.macs, parameters=sample.parameters, method=FlopsMethod.FORMULA)


def without_file(format_: Format, cost: Cost) -> Artifact:
    """What stands for the file of a cell whose device opens none."""
    return Artifact(
        path="",
        sha256="",
        size_bytes=0,
        format=format_,
        cost=cost,
        versions=(),
        max_relative_error=None,
        is_trusted=True,
    )


@lru_cache(maxsize=4096)
def token_costs(shape: LanguageShape | None, execution: Execution) -> tuple[TokenCost, ...]:
    """The cost of one inference of the whole batch; for `generate` of prompt and step.

    Empty for models without a language shape, and for a step of training.
    """
    if shape is None or execution.workload.kind is WorkloadKind.TRAIN:
        return ()
    size = VALUE_BYTES.get(execution.precision, _USUAL_BYTES)
    # Of integers: weights of products alone; the other weights and the cache are fp32.
    matrix = None
    if execution.precision in INTEGERS:
        recipe = LANGUAGE_RECIPES.get((format_of(execution.runtime), execution.precision))
        matrix = WEIGHT_BYTES[execution.precision] + SCALE_BYTES.get(str(recipe), 0.0)
    costs = (
        call_cost(shape, call, execution.batch, size, matrix)
        for call in calls_of(execution.workload)
    )
    return tuple(
        TokenCost(
            macs=cost.macs * execution.batch,
            moved_bytes=cost.bytes_moved,
            weight_bytes=cost.weight_bytes,
            state_bytes=cost.state_bytes,
        )
        for cost in costs
    )
