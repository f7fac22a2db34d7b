"""What a key of a user's file means, how its content is checked, and the words of its problems.

A class states its keys once, with `Key`. Pydantic's `TypeAdapter` of this class checks a file. A
process that must not load Pydantic, such as the measuring worker, imports the same class: this
module takes Pydantic's schemas and errors as plain data.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeVar

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.small_file import decoded
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import did_you_mean, nearest

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

Place = Sequence[str | int]
"""Keys and 0-based positions: the location of an error, as Pydantic reports it."""
Node = Mapping[str, Any]
"""A part of a JSON Schema, or of one of Pydantic's own schemas."""

NO_OTHER_KEYS = {"extra": "forbid"}
"""`__pydantic_config__` of a class whose keys are all that a file may have."""
_LONGEST_VALUE = 200
"""Maximum characters of a file's text quoted in a message."""
_MAX_PROBLEMS = 10
"""Maximum number of problems listed in one message."""
_SIZE = re.compile(
    r"(?P<number>\d{1,20}(\.\d{1,20})?) ?(?:(?P<unit>[KMGTPE])(?P<binary>i)?)?B?", re.IGNORECASE
)
_OF_KEY = "[key]"
"""What Pydantic appends to the location when the key itself is wrong."""
_PLAINER = {
    "missing": "is required and missing",
    "model_type": "needs `key: value` lines below it",
    "dataclass_type": "needs `key: value` lines below it",
    "dict_type": "needs `key: value` lines below it",
    "tuple_type": "give a value or a list",
    "list_type": "give a list",
    "byte_size": "give a number of bytes, or text such as '2GiB'",
}
"""Replacements for Pydantic messages that use Python terms."""
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "`key: value` lines below it",
}


@dataclass(frozen=True, slots=True)
class Key:
    """The meaning of a key, and the limits of its value: a note in `Annotated`.

    Numbers are strict: text, or true and false, are not numbers. Floats are finite.

    Attributes:
        text: the meaning, for the reference and the JSON schema.
        ge, gt, le, lt: limits of a number.
        pattern: of a text.
        words: the only values.
    """

    text: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    pattern: str | None = None
    words: Sequence[object] = ()

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], Node]
    ) -> Node:
        """The schema of the type with these limits."""
        return self._limited(handler(source))

    def __get_pydantic_json_schema__(self, core: object, handler: Callable[[object], Node]) -> Node:
        """The JSON schema of the type with the meaning."""
        return {**handler(core), **({"description": self.text} if self.text else {})}

    def _limited(self, schema: Node) -> Node:
        match schema["type"]:
            case "nullable" | "function-before" | "function-after":
                return {**schema, "schema": self._limited(schema["schema"])}
            case "int" | "float" | "bool" as kind:
                limits = {name: getattr(self, name) for name in ("ge", "gt", "le", "lt")}
                given = {name: limit for name, limit in limits.items() if limit is not None}
                finite = {"allow_inf_nan": False} if kind == "float" else {}
                return {**schema, **given, **finite, "strict": True}
            case "str" if self.pattern is not None:
                return {**schema, "pattern": self.pattern}
        return {"type": "literal", "expected": list(self.words)} if self.words else schema


@dataclass(frozen=True, slots=True)
class Checked:
    """A note in `Annotated`: how a valid value is checked further, or turned into ours.

    Attributes:
        function: returns the value; raises `ValueError`, whose text becomes the message.
        form: the type that a person writes, if it is not that of the field.
    """

    function: Callable[[Any], object]
    form: object = None

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Node:
        """The schema of the written form, and the function after it."""
        inner = handler(source) if self.form is None else handler.generate_schema(self.form)
        function = {"type": "no-info", "function": self.function}
        return {"type": "function-after", "function": function, "schema": inner}


@dataclass(frozen=True, slots=True)
class Short:
    """A note in `Annotated`: a function that writes a short form out, before any check.

    Attributes:
        function: returns a value that is not a short form as it is.
        form: the type that a person may write, for the JSON schema.
    """

    function: Callable[[Any], object]
    form: object = None

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Node:
        """The schema of the type, and the function before it."""
        function = {"type": "no-info", "function": self.function}
        found = {"type": "function-before", "function": function, "schema": handler(source)}
        if self.form is not None:
            found["json_schema_input_schema"] = handler.generate_schema(self.form)
        return found


def bytes_of(value: object) -> object:
    """A number of bytes for text such as `500MB` or `2GiB`; any other value as it is.

    Raises:
        ValueError: the text is not a size.
    """
    if not isinstance(value, str):
        return value
    if (found := _SIZE.fullmatch(value.strip())) is None:
        raise ValueError("give a number of bytes, or text such as '2GiB'")
    step = 1024 if found["binary"] else 1000
    return int(float(found["number"]) * step ** "BKMGTPE".index((found["unit"] or "B").upper()))


Bytes = Annotated[int, Short(bytes_of, form=int | str)]
"""A number of bytes; text such as `2GiB` is one too."""


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def plain_number(text: str) -> float:
    """A number as people write it: not `1_0`, `inf` and digits of other scripts, as Python reads.

    Raises:
        ValueError: it is not one, or beyond floats.
    """
    if not _NUMBER.fullmatch(text) or math.isinf(value := float(text)):
        raise ValueError(f"'{text}' is not a number")
    return value


class FileSchema(Protocol[T_co]):
    """What is used of Pydantic's `TypeAdapter`."""

    def validate_python(self, content: object, /) -> T_co:
        """The value; raises a `ValueError` whose `errors` lists the problems."""

    def json_schema(self, *, mode: Literal["serialization"]) -> dict[str, Any]:
        """The form of the content, as it is after reading."""


def checked(schema: FileSchema[T], content: object, where: str) -> T:
    """The content of a user's file as a value.

    Args:
        schema: a `TypeAdapter` of the class of the file.
        content: as its parser returns it.
        where: name of the file in messages.

    Raises:
        BadFileError: names the file, each wrong key, and the nearest valid key or what is expected.
    """
    try:
        return schema.validate_python(content)
    except ValueError as error:
        findings = getattr(error, "errors", None)
        if findings is None:
            raise
        form = _Form(schema.json_schema(mode="serialization"), content)
        raise form.error(findings(include_url=False), where) from error


def read_csv(
    content: bytes, where: str, delimiter: str = ","
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and each line's number and fields; empty lines are left out.

    Raises:
        BadFileError: it is not a CSV file in UTF-8; `where` names it.
    """
    import csv  # not earlier: the measuring worker imports this module and never needs them
    import io

    text = io.StringIO(decoded(content, where), newline="")
    try:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        header = next(reader, [])
        return header, [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise BadFileError(
            f"{where} is not a CSV file: {error}",
            f"save it in UTF-8, with fields of at most 131,072 letters, separated by {delimiter!r}",
        ) from error


class _Form:
    """The form of a kind of file beside the content of one: it words what is wrong there."""

    def __init__(self, root: Node, content: object) -> None:
        # The serialized form; the input may be shorter, such as one value for a list of one.
        self._root, self._content = root, content

    def error(self, findings: Sequence[Node], where: str) -> BadFileError:
        if not isinstance(self._content, dict):
            return BadFileError(
                f"{where} contains no keys and values",
                f"write `key: value` lines; keys: {self._keys_at(())}",
            )
        missing = [str(item["loc"][-1]) for item in findings if item["type"] == "missing"]
        problems = [
            self._unknown_key(item["loc"], missing)
            if item["type"] in {"extra_forbidden", "unexpected_keyword_argument"}
            else self._wrong_value(item)
            for item in findings[:_MAX_PROBLEMS]
        ]
        texts = [text for text, _ in problems]
        if n_more := len(findings) - len(problems):
            texts.append(f"and {n_more:,} more")
        remedy = "; ".join(dict.fromkeys(text for _, text in problems))
        return BadFileError(f"{where}: " + "; ".join(dict.fromkeys(texts)), remedy)

    def _unknown_key(self, place: Place, missing: Sequence[str]) -> tuple[str, str]:
        """Message and remedy; a required key that is missing is the most likely intention."""
        word, known = str(place[-1]), self._properties(place[:-1])
        otherwise = did_you_mean(word, known, f"valid keys: {self._keys_at(place[:-1])}")
        remedy = did_you_mean(word, missing, otherwise)
        return f"unknown {self._name(place, is_stated=True)}", remedy

    def _wrong_value(self, item: Node) -> tuple[str, str]:
        """Message and remedy: the nearest allowed word if there are few, else what is expected."""
        place, kind = item["loc"], item["type"]
        said = _PLAINER.get(kind, item["msg"].removeprefix("Value error, "))
        text = shortened(said, _LONGEST_VALUE)
        name = self._name(place, is_stated=kind == "missing")
        message = f"{name}{': ' if name else ''}{text[:1].lower()}{text[1:]}"
        verb = "add" if kind == "missing" else "correct"
        remedy = f"{verb} {name.removeprefix('key ') or 'the file'}"
        node = self._node(place)
        guess = nearest(str(item["input"]), [str(word) for word in node.get("enum", ())])
        if guess is not None and kind in {"enum", "literal_error"}:
            return message, f"{remedy}: did you mean '{guess}'?"
        words = None if kind == "value_error" else self._described(node)
        return message, f"{remedy}: give {words}" if words else remedy

    def _name(self, place: Place, *, is_stated: bool) -> str:
        """A name such as `key 'limits.timeout_s'` or `the 2nd entry of 'runtimes'`.

        Args:
            place: of the error.
            is_stated: its last part is a key, also if the form has no such key.
        """
        named, entry, content, node = "", "", self._content, self._root
        for number, part in enumerate(place):
            inner = self._inner(node, part)
            if isinstance(part, int):
                # Without a list, the content is a single value that was accepted as a list of one.
                if isinstance(content, list):
                    named += entry
                    entry, content = f"[{part}]", content[part]
            elif inner is not None or (is_stated and number == len(place) - 1):
                named += f"{entry}.{part}"
                entry, content = "", content.get(part) if isinstance(content, dict) else None
            # Otherwise it is Pydantic's name of a choice of types.
            node = node if inner is None else inner
        named = shortened(named.removeprefix("."))
        if entry:
            return f"the {_ordinal(int(entry[1:-1]))} entry of '{named}'"
        return f"key '{named}'" if named else ""

    def _node(self, place: Place) -> Node:
        """The form of a place; empty where it is not known."""
        if place and place[-1] == _OF_KEY:
            owner = self._node(place[:-2])
            patterns = [{"pattern": pattern} for pattern in owner.get("patternProperties", ())]
            return self._resolved(owner.get("propertyNames", *patterns or [{}]))
        node: Node = self._root
        for part in place:
            node = self._inner(node, part) or node
        return node

    def _inner(self, node: Node, part: str | int) -> Node | None:
        for option in self._options(node):
            inside = [option.get("items" if isinstance(part, int) else "additionalProperties")]
            inside += [*option.get("patternProperties", {}).values()]
            found = option.get("properties", {}).get(part, inside[-1])
            if isinstance(found, Mapping):
                return self._resolved(found)
        return None

    def _options(self, node: Node) -> list[Node]:
        return [self._resolved(one) for one in (node, *node.get("anyOf", ()))]

    def _resolved(self, node: Node) -> Node:
        if (reference := node.get("$ref")) is None:
            return node
        return self._resolved(self._root["$defs"][reference.rpartition("/")[2]])

    def _properties(self, place: Place) -> Node:
        options = self._options(self._node(place))
        return next((one["properties"] for one in options if "properties" in one), {})

    def _keys_at(self, place: Place) -> str:
        return ", ".join(sorted(self._properties(place)))

    def _described(self, node: Node) -> str | None:
        """Text such as `a whole number from 1 to 1000`; `None` if the form sets no limit."""
        if words := node.get("enum"):
            return f"one of {', '.join(map(str, words))}"
        if options := node.get("anyOf"):
            texts = (self._described(self._resolved(option)) for option in options)
            return " or ".join(dict.fromkeys(text for text in texts if text)) or None
        if node.get("type") == "array":
            one = self._described(self._resolved(node.get("items", {})))
            return "a list" if one is None else f"{one}, or a list of these"
        if "pattern" in node:
            return f"text that matches {node['pattern']}"
        limits = (
            ("from", "minimum"), ("above", "exclusiveMinimum"),
            ("to", "maximum"), ("below", "exclusiveMaximum"),
        )  # fmt: skip
        given = [f" {word} {node[name]}" for word, name in limits if name in node]
        between = " and" if len(given) == 2 and "exclusiveMaximum" in node else ""
        words = _WORDS.get(str(node.get("type")))
        return None if words is None else words + between.join(given)


def _ordinal(position: int) -> str:
    """`1st` for the 0-based position 0."""
    number = position + 1
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in {11, 12, 13} else ending}"
