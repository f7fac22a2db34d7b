"""One column of the measurements table, and short ways to state it."""

from dataclasses import dataclass

import polars as pl

STR, INT, FLOAT, BOOL = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()
UTC, INTS, STRS = pl.Datetime("us", "UTC"), pl.List(pl.Int64), pl.List(pl.String)
Values = tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        values: the closed set of a string column; `None` where it is open.
        field: where a `Measurement` has the value, such as `failure.kind`; `None` if it comes from
            elsewhere (plan, card, device) or is calculated.
    """

    name: str
    dtype: pl.DataType
    doc: str
    values: tuple[str, ...] | None = None
    field: str | None = None


def column(name: str, dtype: pl.DataType, doc: str, values: Values = None) -> Column:
    """A column that comes from the plan, the card or the device, or is calculated."""
    return Column(name=name, dtype=dtype, doc=doc, values=values)


def measured(name: str, dtype: pl.DataType, doc: str, values: Values = None) -> Column:
    """A column that is the field of a measurement with the same name."""
    return at(name, name, dtype, doc, values)


def at(field: str, name: str, dtype: pl.DataType, doc: str, values: Values = None) -> Column:
    """In another field, or in a part of the measurement: `part.` is its field of that name."""
    path = f"{field}{name}" if field.endswith(".") else field
    return Column(name=name, dtype=dtype, doc=doc, values=values, field=path)
