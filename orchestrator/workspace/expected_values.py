"""Describes the valid values of a key, from the JSON Schema of the file."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

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
