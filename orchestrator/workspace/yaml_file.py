"""Reads YAML files written by users; an error names file, key, nearest key and remedy."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter

from fleetrank.foundation.errors import BadFileError, reworded
from fleetrank.foundation.plain_data import TYPED, check_events, check_limits
from fleetrank.foundation.small_file import read_small_text
from fleetrank.foundation.user_file import checked
from fleetrank.foundation.visible_text import shortened
from fleetrank.orchestrator.errors import UsageError

if TYPE_CHECKING:
    from yaml import SafeLoader as _Loader

else:
    # The C loader is ten times as fast, but not every wheel has it.
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONGEST_VALUE = 200
"""Maximum characters of a file's text quoted in a message."""
_DIRECTIVE = re.compile("^%", re.MULTILINE)
_MAX_DIRECTIVES = 10
"""Maximum lines such as `%YAML 1.1`; the time to parse them grows with their square."""
FileT = TypeVar("FileT", bound=BaseModel)


class _UniqueKeyLoader(_Loader):
    """Rejects duplicate keys; YAML's own loader silently keeps only the last one."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        """Builds a mapping after checking for duplicate keys."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
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
    with reworded(UsageError, BadFileError):
        text = read_small_text(path)
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
    with reworded(UsageError, BadFileError):
        return checked(TypeAdapter(schema), content, path)
