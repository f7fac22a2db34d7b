"""Matches the inputs that a task states with those that a file has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.foundation.inputs import ModelInput, plain_input_name

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_INDICES = frozenset({"int32", "int64"})
"""Types that exporters turn into one another: floats by precision, int64 into int32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInput:
    """One input as a file has it.

    Attributes:
        sizes: `None` where the file leaves a size open.
    """

    name: str
    sizes: tuple[int | None, ...]
    dtype: str


def has_states(execution: Execution) -> bool:
    """Whether the task states an input that is a state."""
    return any(one.state is not None for one in execution.inputs)


def specs_of(found: Sequence[FoundInput], execution: Execution) -> tuple[ModelInput, ...]:
    """The inputs with all sizes: those that the task states, otherwise a dynamic batch is set.

    Raises:
        UnsupportedError: a size has no value, or the stated inputs are not those of the file.
    """
    if not execution.inputs:
        return tuple(
            ModelInput(
                name=one.name,
                shape=with_batch(one.name, one.sizes, execution.batch),
                dtype=one.dtype,
            )
            for one in found
        )
    stated = _in_order(found, execution.inputs)
    return tuple(_spec(one, wanted) for one, wanted in zip(found, stated, strict=True))


def with_batch(name: str, sizes: Iterable[int | None], batch: int) -> tuple[int, ...]:
    """The sizes of an input; its first size is set to the batch if it is dynamic (`None`).

    Raises:
        UnsupportedError: another size is dynamic: the user did not choose its value.
    """
    shape = [batch if size is None and axis == 0 else size for axis, size in enumerate(sizes)]
    known = tuple(size for size in shape if size is not None)
    if len(known) < len(shape):
        raise UnsupportedError(
            f"input {name!r} has dynamic sizes besides the batch: {shape}".replace("None", "?"),
            "state its sizes with [[inputs]] in the card, or export the model with fixed sizes",
        )
    return known


def _in_order(found: Sequence[FoundInput], stated: Sequence[ModelInput]) -> tuple[ModelInput, ...]:
    """The stated inputs in the file's order: by name if all names agree, otherwise by place.

    Exporters rename inputs and keep their order.
    """
    if len(found) != len(stated):
        raise UnsupportedError(
            f"the file takes {len(found)} inputs ({', '.join(one.name for one in found)}), the "
            f"card states {len(stated)}",
            "give each input of the file one [[inputs]] table in the card",
        )
    by_name = {one.name: one for one in stated}
    names = [plain_input_name(one.name) for one in found]
    if set(names) == by_name.keys():
        return tuple(by_name[name] for name in names)
    return tuple(stated)


def _spec(one: FoundInput, stated: ModelInput) -> ModelInput:
    fits = len(one.sizes) == len(stated.shape) and all(
        size in (None, wanted) for size, wanted in zip(one.sizes, stated.shape, strict=True)
    )
    is_kin = any({stated.dtype, one.dtype} <= kin for kin in (_FLOATS, _INDICES))
    if not fits or not (stated.dtype == one.dtype or is_kin):
        sizes = ", ".join("?" if size is None else str(size) for size in one.sizes)
        raise UnsupportedError(
            f"input {one.name!r} is {one.dtype} of [{sizes}] in the file, the card states "
            f"{stated.name!r} as {stated.dtype} of {list(stated.shape)}",
            "correct name, order, dtype or shape of [[inputs]] in the card",
        )
    return replace(stated, name=one.name, dtype=one.dtype)
