"""A titled frame with notes for its reader."""

import math
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled frame with notes for its reader; an undefined figure is null, with its reason.

    Raises:
        ValueError: a figure is NaN or infinite; the table function must give null and a reason.
    """

    title: str
    frame: pl.DataFrame
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for column in self.frame.iter_columns():
            if column.dtype.is_float() and not all(map(math.isfinite, column.drop_nulls())):
                raise ValueError(f"column {column.name} of '{self.title}' holds NaN or infinity")
