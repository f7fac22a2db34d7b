"""Checksums of what is stored, so that a flipped bit is found and not read as another value.

They find damage, not forgery: a person who can write a file can write its checksum too.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import read_json_object

DIGITS = 16
"""64 bits: among 10^9 damaged lines not one is expected to pass."""
KEY = "checksum"
MARK = "sha256:"
"""Stands in front of a checksum, so that a damaged key does not make its file an unchecked one."""


class ChecksumError(ValueError):
    """Content and checksum do not belong together: one of the two was changed."""

    def __init__(self) -> None:
        super().__init__("its checksum does not match its content")


def checksum(content: bytes) -> str:
    """The first digits of the content's SHA-256, which processors compute in hardware."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def marked_checksum(content: bytes) -> str:
    """As `checksum`, recognisable as one: `sha256:` and the digits."""
    return MARK + checksum(content)


def with_checksum(content: Mapping[str, object]) -> dict[str, object]:
    """A JSON object with the checksum of its other entries as its last one."""
    rest = {name: value for name, value in content.items() if name != KEY}
    return {**rest, KEY: marked_checksum(_canonical(rest))}


def without_checksum(content: Mapping[str, object]) -> dict[str, object]:
    """A JSON object as it was before `with_checksum`; one without a checksum is returned as it is.

    Raises:
        ChecksumError: an entry was changed, or the checksum.
    """
    rest = {name: value for name, value in content.items() if name != KEY}
    if KEY in content:
        if content[KEY] != marked_checksum(_canonical(rest)):
            raise ChecksumError
    elif any(isinstance(value, str) and value.startswith(MARK) for value in rest.values()):
        raise ChecksumError
    return rest


def read_checked_object(path: Path) -> dict[str, object]:
    """A JSON file that fleetrank wrote, without its checksum.

    Raises:
        MissingFileError: there is none.
        BadFileError: as `read_json_object`, or the checksum does not match.
    """
    try:
        return without_checksum(read_json_object(path))
    except ChecksumError as error:
        raise BadFileError(
            f"{path} has a checksum that does not match its content", "restore it from a copy"
        ) from error


def _canonical(content: Mapping[str, object]) -> bytes:
    """Equal for equal content, however the file is laid out."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
