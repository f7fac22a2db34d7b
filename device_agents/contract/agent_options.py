"""Checks the options of a device file against a dataclass, by name and type."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TypeVar, get_args

from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import PermanentError

T = TypeVar("T")


def read_fields(
    cls: type[T],
    kind: str,
    options: Mapping[str, OptionValue],
    *,
    read_elsewhere: Sequence[str] = (),
) -> T:
    """Builds a dataclass from the options of one device; an integer is accepted for a float.

    Args:
        cls: the dataclass.
        kind: kind of the device, for messages.
        options: by name.
        read_elsewhere: option names of this kind that are not in `cls`, for messages.

    Raises:
        PermanentError: an unknown or missing name, or a value of another type.
    """
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, OptionValue] = {}
    for name, value in options.items():
        if name not in known:
            raise PermanentError(
                f"a device of kind {kind} has no option {name!r}",
                f"its options are: {', '.join((*known, *read_elsewhere))}",
            )
        values[name] = _typed(name, value, known[name].type)
    try:
        return cls(**values)
    except TypeError as error:
        raise PermanentError(
            f"a device of kind {kind} lacks an option: {error}", "add the option"
        ) from error


def _typed(name: str, value: OptionValue, wanted: object) -> OptionValue:
    kinds = get_args(wanted) or (wanted,)
    if type(value) in kinds:
        return value
    if float in kinds and type(value) is int:
        return float(value)
    names = " or ".join(kind.__name__ for kind in kinds if isinstance(kind, type))
    raise PermanentError(f"option {name} is {value!r}", f"the value must be of type {names}")
