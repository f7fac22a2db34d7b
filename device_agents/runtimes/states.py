"""States of a model, such as the cache of a decoder: which output is which input next time."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.inputs import ModelInput


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePair:
    """Places of a state in the inputs and in the outputs of a file."""

    input: int
    output: int


def state_pairs(
    specs: Sequence[ModelInput], outputs: Sequence[str], *, has_names: bool
) -> tuple[StatePair, ...]:
    """The states of a file; empty if the task states none.

    Args:
        specs: the inputs in the file's order.
        outputs: names of the outputs in the file's order.
        has_names: the file keeps the names of its outputs. Otherwise the last outputs are the
            states, in the order of the inputs.

    Raises:
        UnsupportedError: the file lacks an output that the card states.
    """
    places = [place for place, spec in enumerate(specs) if spec.state is not None]
    wanted = [str(specs[place].state) for place in places]
    known = {name: place for place, name in enumerate(outputs)}
    if all(name in known for name in wanted):
        found = [known[name] for name in wanted]
    elif has_names or len(outputs) < len(wanted):
        missing = [name for name in wanted if name not in known]
        raise UnsupportedError(
            f"the file has no output {', '.join(missing)}, which the card states as the next "
            f"value of a state; its outputs are {', '.join(outputs)}",
            "correct `state` of [[inputs]] in the card, or export the file with these outputs",
        )
    else:
        found = list(range(len(outputs) - len(wanted), len(outputs)))
    return tuple(
        StatePair(input=place, output=output) for place, output in zip(places, found, strict=True)
    )


def check_state(spec: ModelInput, shape: Sequence[object], dtype: str) -> None:
    """Checks that an output can be the next value of a state.

    Raises:
        UnsupportedError: its sizes or its type differ, as those of a cache that grows.
    """
    if list(shape) == list(spec.shape) and dtype == spec.dtype:
        return
    raise UnsupportedError(
        f"state {spec.name!r} is {spec.dtype} of {list(spec.shape)}, its next value "
        f"{spec.state!r} is {dtype} of {list(shape)}",
        "export the model with a cache of fixed size, or remove `state` from the card",
    )
