"""Standard JSON: no NaN, no Infinity, text names, valid Unicode."""

import json
import math
from collections.abc import Callable, Mapping


def json_text(
    content: object, *, indent: int | None = None, as_text: Callable[[object], str] = str
) -> str:
    """Encodes the content as JSON; a float that is not finite becomes null.

    Args:
        content: any value.
        indent: blanks per level; `None` writes one line.
        as_text: converts a value or a name that JSON has no type for.
    """
    try:
        text = _dumps(content, indent, as_text)
    except (ValueError, TypeError):
        text = _dumps(_strict(content, as_text), indent, as_text)
    # Half a surrogate pair cannot be encoded, but JSON has an escape for it.
    return text.encode("utf-8", "backslashreplace").decode()


def count_not_finite(value: object) -> int:
    """Number of floats in a value that `json_text` writes as null."""
    if isinstance(value, float):
        return int(not math.isfinite(value))
    if isinstance(value, Mapping):
        return count_not_finite([*value.keys(), *value.values()])
    if isinstance(value, list | tuple):
        return sum(map(count_not_finite, value))
    return 0


def _dumps(content: object, indent: int | None, as_text: Callable[[object], str]) -> str:
    return json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False, default=as_text)


def _strict(value: object, as_text: Callable[[object], str]) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        # JSON itself writes integers, booleans and null as names.
        return {
            key if key is None or isinstance(key, str | int) else as_text(key): _strict(
                part, as_text
            )
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_strict(part, as_text) for part in value]
    return value
