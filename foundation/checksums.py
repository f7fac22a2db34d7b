"""Checksums of stored content, so that a flipped bit is detected and not read as another value.

They detect damage, not forgery: a person who can write a file can also write its checksum.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import read_json_object

DIGITS = 16
"""64 bits: among 10^9 damaged lines the expected number of undetected ones is below one."""
KEY = "checksum"
MARK = "sha256:"
"""Prefix of a checksum, so that a damaged key does not turn its file into an unchecked one."""


class ChecksumError(ValueError):
    """Content and checksum do not match: one of the two was changed."""

    def __init__(self) -> None:
        super().__init__("its checksum does not match its content")


def checksum(content: bytes) -> str:
    """The first digits of the content's SHA-256, which processors compute in hardware."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def marked_checksum(content: bytes) -> str:
    """A `checksum` with the prefix `sha256:`, so that it is recognisable."""
    return MARK + checksum(content)


def with_checksum(content: Mapping[str, object]) -> dict[str, object]:
    """A JSON object with the checksum of its other entries as its last entry."""
    rest = {name: value for name, value in content.items() if name != KEY}
    return {**rest, KEY: marked_checksum(_canonical(rest))}


def without_checksum(content: Mapping[str, object]) -> dict[str, object]:
    """A JSON object without its checksum; an object that has no checksum is returned unchanged.

    Raises:
        ChecksumError: an entry or the checksum was changed.
    """
    rest = {name: value for name, value in content.items() if name != KEY}
    if KEY in content:
        if content[KEY] != marked_checksum(_canonical(rest)):
            raise ChecksumError
    elif any(isinstance(value, str) and value.startswith(MARK) for value in rest.values()):
        raise ChecksumError
    return rest


def read_checked_object(path: Path) -> dict[str, object]:
    """Reads a JSON file that fleetrank wrote; returns it without its checksum.

    Raises:
        MissingFileError: the file does not exist.
        BadFileError: the same as `read_json_object`, or the checksum does not match.
    """
    try:
        return without_checksum(read_json_object(path))
    except ChecksumError as error:
        raise BadFileError(
            f"{path} has a checksum that does not match its content", "restore it from a copy"
        ) from error


def _canonical(content: Mapping[str, object]) -> bytes:
    """Equal text for equal content, in any layout of the file."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
