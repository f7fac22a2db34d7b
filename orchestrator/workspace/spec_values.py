"""The values in files that people write: their ranges, and how an error message describes them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from fleetrank.foundation.inputs.workload import Workload

T = TypeVar("T")

_LONGEST_SIZE = 40
"""Maximum characters of a size with its unit."""
_LARGEST_OPTION = 2.0**63
"""Option values are stored as JSON and in columns, whose integers have 64 bits."""


def _as_list(value: object) -> object:
    """Accepts a single value as a list of one."""
    return [value] if isinstance(value, str | int | float) else value


def _not_empty(values: tuple[T, ...]) -> tuple[T, ...]:
    if not values:
        raise ValueError("give at least one")
    return values


def _option_value(value: object) -> object:
    """Runs before the union check, whose error message would list every type."""
    is_number = isinstance(value, int | float) and abs(value) < _LARGEST_OPTION
    if not (is_number or isinstance(value, str)):
        raise ValueError("give a number below 2^63, true, false or text")
    return value


def _size(value: object) -> object:
    """Checks the size first, because Pydantic's conversion can overflow."""
    if isinstance(value, str) and len(value) > _LONGEST_SIZE:
        raise ValueError("give a number of bytes, or text such as '2GiB'")
    return value


def _affinity(value: object) -> object:
    is_cores = isinstance(value, list | tuple) and all(
        type(core) is int and 0 <= core < 2**16 for core in value
    )
    if not (value in ("first_cores", "free") or (is_cores and value)):
        raise ValueError("give first_cores, free, or a list of core numbers")
    return value


OneOrMany = Annotated[
    tuple[T, ...],
    AfterValidator(_not_empty),
    BeforeValidator(_as_list, json_schema_input_type=T | list[T]),
]


def _workload(value: object) -> object:
    return Workload.parse(value) if isinstance(value, str) else value


WorkloadSpec = Annotated[
    Workload,
    BeforeValidator(_workload, json_schema_input_type=str),
    PlainSerializer(str, return_type=str),
]
OptionSpec = Annotated[bool | int | float | str, BeforeValidator(_option_value)]
Count = Annotated[int, Field(ge=1, le=10**7, strict=True)]
AxisName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,19}$")]
Threads = Annotated[int, Field(ge=1, le=4096, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]
LONGEST_S = 1e8
"""Three years; larger values overflow the system's timers."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, strict=True, allow_inf_nan=False)]
MemoryLimit = Annotated[
    ByteSize,
    BeforeValidator(_size),
    Field(ge=2**20, lt=2**63),
    WithJsonSchema({"type": "integer", "minimum": 2**20}, mode="serialization"),
]
Share = Annotated[float, Field(gt=0, lt=1, strict=True)]
Affinity = Annotated[Literal["first_cores", "free"] | tuple[int, ...], BeforeValidator(_affinity)]


Node = Mapping[str, object]
"""A part of a JSON Schema."""
Place = Sequence[str | int]
"""Keys and 0-based positions: the location of an error, as Pydantic reports it."""
OF_KEY = "[key]"
"""What Pydantic appends to the location when the key itself is wrong."""

_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "`key: value` lines below it",
}


class Expected:
    """The schema of one kind of file, queried by location."""

    def __init__(self, schema: type[BaseModel]) -> None:
        # The serialized form; the input may be shorter, such as one value for a list of one.
        self._root: Node = schema.model_json_schema(mode="serialization")

    def words(self, place: Place) -> str | None:
        """Text such as `a whole number from 1 to 1000`; `None` if the schema sets no limit."""
        node = self._find(place)
        return None if node is None else self._described(node)

    def choices(self, place: Place) -> tuple[str, ...]:
        """The words allowed there; empty if any word is allowed."""
        node = self._find(place) or {}
        return tuple(str(word) for word in _list(node.get("enum")))

    def _find(self, place: Place) -> Node | None:
        node: Node | None = self._root
        if place and place[-1] == OF_KEY:
            owner = self._find(place[:-2]) or {}
            return self._resolved(owner.get("propertyNames"))
        for part in place:
            node = None if node is None else self._inner(node, part)
        return node

    def _inner(self, node: Node, part: str | int) -> Node | None:
        options = [node, *(self._resolved(option) for option in _list(node.get("anyOf")))]
        for option in options:
            found = option.get("items" if isinstance(part, int) else "additionalProperties")
            properties = option.get("properties")
            if isinstance(properties, Mapping) and part in properties:
                found = properties[part]
            if isinstance(found, Mapping):
                return self._resolved(found)
        return None

    def _resolved(self, node: object) -> Node:
        if not isinstance(node, Mapping):
            return {}
        reference, definitions = node.get("$ref"), self._root.get("$defs")
        if isinstance(reference, str) and isinstance(definitions, Mapping):
            return self._resolved(definitions[reference.rpartition("/")[2]])
        return node

    def _described(self, node: Node) -> str | None:
        if words := _list(node.get("enum")):
            return f"one of {', '.join(map(str, words))}"
        if options := _list(node.get("anyOf")):
            texts = (self._described(self._resolved(option)) for option in options)
            return " or ".join(dict.fromkeys(text for text in texts if text)) or None
        if node.get("type") == "array":
            one = self._described(self._resolved(node.get("items")))
            return "a list" if one is None else f"{one}, or a list of these"
        return _of_one_value(node)


def ordinal(position: int) -> str:
    """`1st` for the 0-based position 0."""
    number = position + 1
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in {11, 12, 13} else ending}"


def _of_one_value(node: Node) -> str | None:
    if "pattern" in node:
        return f"text that matches {node['pattern']}"
    words = _WORDS.get(str(node.get("type")))
    return None if words is None else words + _range(node)


def _range(node: Node) -> str:
    limits = (
        ("from", "minimum"), ("above", "exclusiveMinimum"),
        ("to", "maximum"), ("below", "exclusiveMaximum"),
    )  # fmt: skip
    texts = [f" {word} {node[name]}" for word, name in limits if name in node]
    return " and".join(texts) if len(texts) == 2 and "exclusiveMaximum" in node else "".join(texts)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
