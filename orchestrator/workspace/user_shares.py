"""Reads the file of `faster --users`: which share of the users has which device."""

import math
from collections.abc import Iterator
from pathlib import Path

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.small_file import MAX_TYPED_BYTES, read_small_bytes
from fleetrank.foundation.user_file import plain_number, read_csv
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.orchestrator.workspace.workspace import stored_name

MAX_DEVICES = 10_000
"""The largest public list of devices has a third of this."""
_COLUMNS = ("device", "share")


def read_shares(path: Path) -> dict[str, float]:
    """Share of users by device or device model, as written: they need not sum to 1.

    The file is CSV with the columns `device` and `share`; a share is a number, or `12%` for 0.12.

    Raises:
        MissingFileError: the file does not exist.
        BadFileError: it is not a regular text file of at most 1 MB, lacks a column, names a device
            twice or more than `MAX_DEVICES`, or a share is not a number above 0; the message gives
            the line's number.
    """
    shares: dict[str, float] = {}
    for number, device, given in _rows(path):
        if not device or visible_line(device) != device:
            raise _bad(path, number, f"'{shortened(visible_line(device))}' is not a device")
        if device in shares:
            raise _bad(path, number, f"device '{shortened(device)}' stands there twice")
        try:
            share = share_of(given)
        except ValueError:
            share = math.nan
        if not 0 < share < math.inf:
            raise _bad(path, number, f"'{shortened(visible_line(given))}' is not a share above 0")
        shares[stored_name(device)] = share
    if not 0 < len(shares) <= MAX_DEVICES:
        raise BadFileError(
            f"{path} names {len(shares):,} devices", f"name 1 to {MAX_DEVICES:,}, one a line"
        )
    return shares


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    header, lines = read_csv(read_small_bytes(path, MAX_TYPED_BYTES), str(path))
    header = [name.strip() for name in header]
    for count, problem in ((0, "lacks a column"), (2, "has a column twice")):
        if count in map(header.count, _COLUMNS):
            raise BadFileError(
                f"{path} {problem}: it needs {' and '.join(_COLUMNS)}",
                "begin it with the line `device,share`",
            )
    at = [header.index(name) for name in _COLUMNS]
    for number, cells in lines:
        if len(cells) != len(header):
            raise _bad(path, number, f"{len(cells)} fields in place of {len(header)}")
        device, share = (cells[one].strip() for one in at)
        yield number, device, share


def share_of(text: str) -> float:
    """A share given as `5%` or `0.05`.

    Raises:
        ValueError: it is not a number.
    """
    number = text.removesuffix("%")
    return plain_number(number) / (1 if number == text else 100)


def _bad(path: Path, number: int, problem: str) -> BadFileError:
    return BadFileError(f"{path}, line {number}: {problem}", "write lines such as `pixel-6,0.12`")
