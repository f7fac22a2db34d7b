"""Limits of data read from small files, and the readers that apply them.

JSON and TOML are checked after parsing. YAML is checked by its events, before anything is built.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import tomllib

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.small_file import MAX_RECORD_BYTES, MAX_TYPED_BYTES, read_small_text
from fleetrank.foundation.visible_text import shortened

ParsedT = TypeVar("ParsedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLimits:
    """Limits of the content of one file.

    Attributes:
        values: keys, values and lists in total.
        depth: how deep lists and tables are nested.
    """

    max_bytes: int
    values: int
    depth: int


TYPED = DataLimits(max_bytes=MAX_TYPED_BYTES, values=50_000, depth=50)
"""For files that a person writes: the longest file seen has some thousand values, nested 4 deep;
50,000 are read and checked in a second."""
RECORD = DataLimits(max_bytes=MAX_RECORD_BYTES, values=1_000_000, depth=50)
"""For files that fleetrank writes, and published tables: the record of a sweep of 39,000 cells, all
of them skipped, has 160,000."""
MAX_DIGITS = 400
"""Limit of an integer: more than a float has. Python cannot convert more than 4,300 digits to or
from text, so a command would fail wherever such a number is first printed."""
_MAX_BITS = 1330
"""For an integer of 400 digits."""
_TOML_STRING = re.compile(r"""\"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_TOML_LONG_NUMBER = re.compile(rf"(?<![\w_])[-+]?[0-9_]{{{MAX_DIGITS + 1}}}")
_TOML_ENDS = re.compile(r"[=\[\]{},#]")
"""Characters that end a key."""
_YAML_BEGINS = {"SequenceStartEvent", "MappingStartEvent"}
_YAML_ENDS = {"SequenceEndEvent", "MappingEndEvent"}
_IN_YAML_NUMBERS = frozenset("_:+-. \t\n")
"""Besides digits: YAML 1.1 reads `1:30` as 90; its time grows with the square of the parts."""


def read_toml(path: Path) -> dict[str, object]:
    """Reads a TOML file that a person wrote.

    Raises:
        BadFileError: it cannot be read, is not TOML, or is over a limit; names file, place, remedy.
    """
    return parse_toml(read_small_text(path, TYPED.max_bytes), str(path))


def parse_toml(text: str, where: str) -> dict[str, object]:
    """Parses TOML; `where` names the file in messages. Raises the same errors as `read_toml`."""
    for line in _TOML_STRING.sub("", text).split("\n"):
        # tomllib's time grows with the square of the number of parts in a dotted key.
        if any(part.count(".") > TYPED.depth for part in _TOML_ENDS.split(line)):
            raise too_deep(where, TYPED)
        if _TOML_LONG_NUMBER.search(line):
            key = shortened(line.partition("=")[0].strip())
            raise too_many_digits(f"{where}: key '{key}'")
    content = _parsed(lambda: tomllib.loads(text), where, "TOML")
    check_limits(content, where, TYPED)
    return content


def read_json_object(path: Path) -> dict[str, object]:
    """Reads a JSON file that fleetrank wrote; its text must be one object.

    Raises:
        MissingFileError: the file does not exist.
        BadFileError: it cannot be read, is not a JSON object, or is over a limit; names file, place
            and remedy.
    """
    content = parse_json(read_small_text(path, RECORD.max_bytes), str(path))
    if not isinstance(content, dict):
        raise BadFileError(f"{path} is not a JSON object", "restore it")
    return content


def parse_json(text: str, where: str) -> object:
    """Parses JSON within the limits of a record; raises as `read_json_object`."""
    content: object = _parsed(lambda: json.loads(text), where, "JSON")
    check_limits(content, where, RECORD)
    return content


def check_limits(content: object, where: str, limits: DataLimits) -> None:
    """Checks data that has been read against the limits.

    Raises:
        BadFileError: too many values, nested too deep, or a number of too many digits.
    """
    for n_before, (depth, name, value) in enumerate(_walk(content)):
        if n_before >= limits.values:
            raise too_many_values(where, limits)
        if depth > limits.depth:
            raise too_deep(where, limits)
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise too_many_digits(f"{where}: key '{name}'")


def too_many_values(where: str, limits: DataLimits) -> BadFileError:
    """The error for a file with too many values."""
    return BadFileError(
        f"{where} contains more than {limits.values:,} values", "split it, or shorten its lists"
    )


def too_deep(where: str, limits: DataLimits) -> BadFileError:
    """The error for a file whose lists and tables are nested too deep."""
    return BadFileError(f"{where} is nested more than {limits.depth} deep", "reduce the nesting")


def too_many_digits(where: str) -> BadFileError:
    """The error for a number that is too long to be a value."""
    return BadFileError(f"{where}: a number of more than {MAX_DIGITS} digits", "give a smaller one")


def _parsed(parse: Callable[[], ParsedT], where: str, language: str) -> ParsedT:
    try:
        return parse()
    except RecursionError as error:
        raise BadFileError(f"{where} is nested too deep", "reduce the nesting") from error
    except ValueError as error:
        # From the parser, or from Python's own limit of digits.
        raise BadFileError(
            f"{where} is not {language}: {shortened(str(error), 300)}",
            f"correct the {language} at that place",
        ) from error


def _walk(content: object) -> Iterator[tuple[int, str, object]]:
    """Every key and value with its depth and its key; without recursion."""
    waiting: list[tuple[int, str, object]] = [(0, "", content)]
    while waiting:
        depth, name, value = waiting.pop()
        yield depth, name, value
        if isinstance(value, Mapping):
            for key, inner in value.items():
                key_name = shortened(f"{name}.{_shown(key)}" if name else _shown(key))
                waiting += ((depth + 1, key_name, key), (depth + 1, key_name, inner))
        elif isinstance(value, list | tuple | set):
            waiting.extend((depth + 1, name, inner) for inner in value)


def _shown(key: object) -> str:
    # In hexadecimal, Python has no limit of digits.
    return hex(key) if isinstance(key, int) else str(key)


class Event(Protocol):
    """An event of `yaml.parse`; most kinds have further attributes."""

    @property
    def start_mark(self) -> object:
        """Its position in the text."""


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been read; `key` is the last one, empty in a list."""

    is_mapping: bool
    n_inside: int = 0
    key: str = ""

    def add(self, text: str) -> None:
        """Counts a value inside it, which is a key if it is every other one of a mapping."""
        if self.is_mapping and self.n_inside % 2 == 0:
            self.key = shortened(text)
        self.n_inside += 1


def check_events(events: Iterable[Event], where: str, limits: DataLimits) -> None:
    """Reads events until a limit is exceeded or the text ends.

    Raises:
        BadFileError: too many values, nested too deep, a number of too many digits, or an alias,
            of which nine lines can stand for 10^9 values; names the file and the place.
    """
    opened: list[_Open] = []
    n_values = 0
    for event in events:
        kind, text = type(event).__name__, str(getattr(event, "value", ""))
        if kind == "AliasEvent":
            name = shortened(str(getattr(event, "anchor", "")))
            raise BadFileError(f"{where}: the alias *{name} is not allowed", "write the value out")
        if kind in _YAML_ENDS:
            opened.pop()
        if kind not in _YAML_BEGINS | {"ScalarEvent"}:
            continue
        n_values += 1
        if n_values > limits.values:
            raise too_many_values(where, limits)
        if opened:
            opened[-1].add(text)
        if kind in _YAML_BEGINS:
            opened.append(_Open(kind == "MappingStartEvent"))
        if len(opened) > limits.depth:
            raise too_deep(where, limits)
        if len(text) > MAX_DIGITS and all(c.isdigit() or c in _IN_YAML_NUMBERS for c in text):
            keys = ".".join(inside.key for inside in opened if inside.key)
            raise too_many_digits(f"{where}: key '{shortened(keys)}'")
