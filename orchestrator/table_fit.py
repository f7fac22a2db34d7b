"""Says whether a row fits the table: one check for rows that are made, and for stored ones."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import polars as pl

from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.analysis.stored.part_list import MEASUREMENTS
from fleetrank.analysis.stored.side_tables import SIDE_TABLES

SCHEMAS: Mapping[str, Mapping[str, pl.DataType]] = {
    MEASUREMENTS: SCHEMA, **{name: table.schema for name, table in SIDE_TABLES.items()}
}  # fmt: skip
"""Every table that is stored: measurements, and the side tables."""
_INTEGERS = range(-(2**63), 2**63)
_SHOWN = 40
"""Most letters of a wrong value in a message."""


def why_misfit(row: Mapping[str, object], table: str = MEASUREMENTS) -> str | None:
    """The first value that its column cannot hold; `None` if the row fits.

    Columns that the table lacks are not stored, so they do not count.
    """
    fits = _FITS[table]
    for name, value in row.items():
        if value is not None and name in fits and not fits[name](value):
            return f"{name} cannot be {_short(value)}"
    return None


def _short(value: object) -> str:
    if isinstance(value, int) and int(value) not in _INTEGERS:
        return f"an integer of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_integer(value: object) -> bool:
    return type(value) is int and value in _INTEGERS


def _is_number(value: object) -> bool:
    return type(value) is float or _is_integer(value)


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_truth(value: object) -> bool:
    return type(value) is bool


def _is_time(value: object) -> bool:
    try:
        datetime.fromisoformat(str(value)).astimezone(UTC)
    except (ValueError, OverflowError):
        return False
    return True


def _are_integers(value: object) -> bool:
    # Thousands of samples: no call for each.
    return type(value) is list and (
        not value
        or (set(map(type, value)) == {int} and min(value) in _INTEGERS and max(value) in _INTEGERS)
    )


def _are_texts(value: object) -> bool:
    return type(value) is list and set(map(type, value)) <= {str}


_BY_TYPE: Mapping[pl.DataType, Callable[[object], bool]] = {
    pl.Int64(): _is_integer,
    pl.Float64(): _is_number,
    pl.String(): _is_text,
    pl.Boolean(): _is_truth,
    pl.List(pl.Int64): _are_integers,
    pl.List(pl.String): _are_texts,
}
_FITS = {
    table: {name: _BY_TYPE.get(dtype, _is_time) for name, dtype in schema.items()}
    for table, schema in SCHEMAS.items()
}
