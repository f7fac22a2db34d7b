"""The key `workloads` of a user's card, and the inputs that it needs."""

from collections.abc import Sequence
from typing import Literal

from fleetrank.foundation.inputs.workload import CONTEXT, TOKENS, WorkloadKind
from fleetrank.models.cards.language import DECODER_WORKLOADS
from fleetrank.models.cards.user_inputs import UserInput

UserWorkload = Literal[
    WorkloadKind.PREFILL, WorkloadKind.DECODE, WorkloadKind.GENERATE, WorkloadKind.ENCODE
]


def check_workloads(kinds: Sequence[UserWorkload], inputs: Sequence[UserInput]) -> None:
    """Checks that the inputs of a file are those of its workloads.

    Raises:
        ValueError: a decoder has no state, an encoder has one, or an axis is missing.
    """
    states = [one.state for one in inputs if one.state is not None]
    axes = {size for one in inputs for size in one.shape}
    if not kinds:
        if states:
            raise ValueError("an input with a state needs the key 'workloads'")
        return
    if len(set(kinds)) < len(kinds):
        raise ValueError("workloads: give each kind once")
    if len(set(states)) < len(states):
        raise ValueError("two inputs have the same state")
    if TOKENS not in axes:
        raise ValueError(f"workloads: no input has an axis {TOKENS!r}")
    is_decoder = [kind in DECODER_WORKLOADS for kind in kinds]
    if any(is_decoder) and not all(is_decoder):
        raise ValueError("workloads: a model is a decoder or an encoder, not both")
    if any(is_decoder) and (not states or CONTEXT not in axes):
        raise ValueError(
            f"workloads: a decoder needs inputs with an axis {CONTEXT!r} and a state, its cache"
        )
    if states and not any(is_decoder):
        raise ValueError("workloads: an encoder has no input with a state")
