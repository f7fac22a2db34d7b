"""Options of a command that state values of inputs and sizes of axes: `NAME=RULE`, `NAME=SIZE`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import TypeAdapter

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.user_file import Checked, checked, plain_number
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import did_you_mean
from fleetrank.models.cards.inputs import CardInput, valid_input
from fleetrank.models.cards.zoo import placed
from fleetrank.orchestrator.errors import UsageError

_FORMS = "NAME=normal, NAME=ids:30522, NAME=constant:1, NAME=range:0,255 or NAME=file:values.npy"
_MOST_SIZES = 100
"""Of one axis; more is a mistake."""
_INPUT: TypeAdapter[CardInput] = TypeAdapter(Annotated[CardInput, Checked(valid_input)])


def with_rules(inputs: Sequence[CardInput], texts: Sequence[str]) -> tuple[CardInput, ...]:
    """The inputs with the values that options state.

    Args:
        inputs: of a file.
        texts: `NAME=RULE`. The rules are those of a card: `normal`; `ids:N`, whole numbers below N;
            `constant:X`; `range:A,B`; `file:PATH`, relative to the current folder.

    Raises:
        UsageError: an input is unknown, a rule is not valid for its type, or a card cannot state an
            input of the file.
    """
    known = {one.name: one for one in inputs}
    found = {name: _accepted(one) for name, one in known.items()}
    for text in texts:
        name, _, rule = text.rpartition("=")
        if name not in known:
            raise UsageError(
                f"'{shortened(text)}': the file has no input '{shortened(name)}'",
                did_you_mean(name, known, f"its inputs: {', '.join(known)}"),
            )
        found[name] = _with_rule(known[name], rule, text)
    return tuple(found.values())


def _accepted(one: CardInput) -> CardInput:
    """The input, if a card can state it."""
    try:
        return checked(_INPUT, _stated(one), f"input '{shortened(one.name)}' cannot be measured")
    except BadFileError as error:
        raise UsageError(error.message, "export the model with other inputs") from error


def _stated(one: CardInput) -> dict[str, object]:
    return {"name": one.name, "shape": one.shape, "dtype": one.dtype}


def _with_rule(one: CardInput, rule: str, text: str) -> CardInput:
    try:
        stated = {**_stated(one), "values": _values(rule)}
        return placed(checked(_INPUT, stated, f"'{shortened(text)}'"), Path.cwd())
    except BadFileError as error:
        raise UsageError(error.message, f"write {_FORMS}") from error
    except (ValueError, OSError) as error:
        raise UsageError(f"'{shortened(text)}' is not a rule", f"write {_FORMS}") from error


def _values(rule: str) -> object:
    """The rule as a card states it.

    Raises:
        ValueError: it is not a rule.
    """
    word, _, value = rule.partition(":")
    match word:
        case "normal" if not value:
            return "normal"
        case "ids":
            return {"below": int(value)}
        case "constant":
            return {"constant": plain_number(value)}
        case "range":
            low, high = value.split(",")
            return {"range": (plain_number(low), plain_number(high))}
        case "file":
            return {"file": value}
    raise ValueError(rule)


def axis_sizes(texts: Sequence[str]) -> dict[str, list[int]]:
    """The sizes of axes by name, from options `NAME=SIZE` or `NAME=SIZE,SIZE`.

    Raises:
        UsageError: an option has another form, or names an axis twice.
    """
    found: dict[str, list[int]] = {}
    for text in texts:
        name, _, sizes = text.partition("=")
        words = sizes.split(",")
        if not (name and len(words) <= _MOST_SIZES and all(map(_is_size, words))):
            raise UsageError(
                f"'{shortened(text)}' does not state the size of an axis",
                "write NAME=SIZE or NAME=SIZE,SIZE, such as seq=128,512",
            )
        if name in found:
            raise UsageError(
                f"axis '{shortened(name)}' is given twice", "write its sizes as NAME=SIZE,SIZE"
            )
        found[name] = [int(word) for word in words]
    return found


def _is_size(word: str) -> bool:
    # Longer numbers are above the limit of every axis.
    return word.isascii() and word.isdecimal() and len(word) <= 10
