"""Reads YAML files written by users; an error names file, key, nearest key and remedy."""

import re
import types
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import TYPED, check_events, check_limits
from fleetrank.foundation.small_file import read_small_text
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import nearest
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.spec_values import OF_KEY, Expected, Place, ordinal

_LONGEST_VALUE = 200
"""Maximum characters of a file's text quoted in a message."""
_MAX_PROBLEMS = 10
"""Maximum number of problems listed in one message."""
_DIRECTIVE = re.compile("^%", re.MULTILINE)
_MAX_DIRECTIVES = 10
"""Maximum lines such as `%YAML 1.1`; the time to parse them grows with their square."""

_PLAINER = {
    "missing": "is required and missing",
    "model_type": "needs `key: value` lines below it",
    "dict_type": "needs `key: value` lines below it",
    "tuple_type": "give a value or a list",
    "list_type": "give a list",
    "byte_size": "give a number of bytes, or text such as '2GiB'",
}
"""Replacements for Pydantic messages that use Python terms."""

FileT = TypeVar("FileT", bound=BaseModel)


if TYPE_CHECKING:
    from yaml import SafeLoader as _Loader
else:
    # The C loader is ten times as fast, but not every wheel has it.
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):
    """Rejects duplicate keys; YAML's own loader silently keeps only the last one."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        """Builds a mapping after checking for duplicate keys."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                # Expanded to text, a key of nested aliases would fill memory.
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a plain value", key_node.start_mark
                )
            key = self.construct_object(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: Path) -> object:
    """Reads one YAML document without executing any code.

    Raises:
        UsageError: the file is missing, unreadable, over a limit, not YAML, or has a duplicate key.
    """
    try:
        text = read_small_text(path)
    except BadFileError as error:
        raise UsageError(error.message, error.remedy) from error
    return load_yaml(text, str(path))


def load_yaml(text: str, path: str) -> object:
    """Parses YAML text; `path` is its name in messages. Raises as `read_yaml`."""
    if len(_DIRECTIVE.findall(text)) > _MAX_DIRECTIVES:
        raise UsageError(
            f"{path} has over {_MAX_DIRECTIVES} lines that begin with %", "indent them"
        )
    try:
        check_events(yaml.parse(text, Loader=_Loader), path, TYPED)
        # A subclass of SafeLoader: builds plain values only.
        content: object = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506
        check_limits(content, path, TYPED)
    except BadFileError as error:
        raise UsageError(error.message, error.remedy) from error
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        last = text.count("\n")
        # For a text without a final newline, the C loader reports the end on the next line.
        line = "" if place is None else f", line {1 + min(place.line, last)}"
        problem = shortened(getattr(error, "problem", None) or str(error), _LONGEST_VALUE)
        raise UsageError(f"{path}{line}: {problem}", "fix the YAML at that line") from error
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        # PyYAML does not catch errors of its conversions: a 13th month, `!!bool maybe`.
        problem = shortened(str(error), _LONGEST_VALUE)
        raise UsageError(f"{path}: {problem}", "fix that value, or quote it") from error
    return content


def parse_file(path: Path, schema: type[FileT]) -> FileT:
    """Reads a YAML file and checks it against its schema.

    Raises:
        UsageError: names the file, each wrong key and the nearest valid one.
    """
    return parse_content(str(path), schema, read_yaml(path))


def parse_content(path: str, schema: type[FileT], content: object) -> FileT:
    """Checks the content of a file; `path` is its name in messages.

    Raises:
        UsageError: as `parse_file`.
    """
    if not isinstance(content, dict):
        raise UsageError(
            f"{path} contains no keys and values",
            f"write `key: value` lines; keys: {_keys(schema)}",
        )
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        findings = error.errors(include_url=False)
        missing = [str(item["loc"][-1]) for item in findings if item["type"] == "missing"]
        expected = Expected(schema)
        problems = [
            _unknown_key(schema, item["loc"], missing)
            if item["type"] == "extra_forbidden"
            else _wrong_value(item, content, expected)
            for item in findings[:_MAX_PROBLEMS]
        ]
        texts = [text for text, _ in problems]
        if n_more := len(findings) - len(problems):
            texts.append(f"and {n_more:,} more")
        message = f"{path}: " + "; ".join(dict.fromkeys(texts))
        remedy = "; ".join(dict.fromkeys(text for _, text in problems))
        raise UsageError(message, remedy) from error


def _wrong_value(
    item: ErrorDetails, content: Mapping[object, object], expected: Expected
) -> tuple[str, str]:
    """Message and remedy: the nearest allowed word if there are few, otherwise what is expected."""
    place, kind = item["loc"], item["type"]
    said = _PLAINER.get(kind, item["msg"].removeprefix("Value error, "))
    text = shortened(said, _LONGEST_VALUE)
    name = _name(place, content)
    message = f"{name}{': ' if name else ''}{text[:1].lower()}{text[1:]}"
    verb = "add" if kind == "missing" else "correct"
    remedy = f"{verb} {name.removeprefix('key ') or 'the file'}"
    guess = nearest(str(item["input"]), expected.choices(place))
    if guess is not None and kind in {"enum", "literal_error"}:
        return message, f"{remedy}: did you mean '{guess}'?"
    words = None if kind == "value_error" else expected.words(place)
    return message, f"{remedy}: give {words}" if words else remedy


def _name(place: Place, content: object) -> str:
    """A name such as `key 'limits.timeout_s'` or `the 2nd entry of 'runtimes'`."""
    keys, entries = [], ""
    for part in place:
        if isinstance(content, list) and isinstance(part, int):
            entries = f"the {ordinal(part)} entry of {entries}"
            content = content[part]
        elif isinstance(part, str) or isinstance(content, dict):
            keys.append(str(part))
            content = content.get(part) if isinstance(content, dict) else None
        # Otherwise the content is a single value that was accepted as a list of one.
    named = f"'{_joined(key for key in keys if key != OF_KEY)}'"
    if entries:
        return entries + named
    return f"key {named}" if keys else ""


def _unknown_key(
    schema: type[BaseModel], place: Sequence[str | int], missing: Sequence[str]
) -> tuple[str, str]:
    """Message and remedy; a required key that is missing is the most likely intention."""
    owner = _owner(schema, place[:-1])
    word = str(place[-1])
    guess = nearest(word, missing) or nearest(word, owner.model_fields)
    remedy = f"did you mean '{guess}'?" if guess else f"valid keys: {_keys(owner)}"
    return f"unknown key '{_joined(place)}'", remedy


def _joined(place: Iterable[str | int]) -> str:
    return shortened(".".join(str(part) for part in place))


def _keys(schema: type[BaseModel]) -> str:
    return ", ".join(sorted(schema.model_fields))


def _owner(schema: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """The schema of a nested location, as far as it can be resolved."""
    for part in place:
        field = schema.model_fields.get(str(part))
        inner = None if field is None else _schema_in(field.annotation)
        schema = inner or schema
    return schema


def _schema_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {Annotated, Union, types.UnionType, dict, tuple, list}:
        for argument in get_args(annotation):
            if (found := _schema_in(argument)) is not None:
                return found
    return None
