"""A titled frame with notes for its reader."""

import math
from dataclasses import dataclass, replace

import polars as pl

_FROM_ZERO = ("repeat", "attempt")
"""Columns that count from 0 where they are stored, and in formats for programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled frame with notes for its reader; an undefined figure is null, with its reason.

    Attributes:
        notes: what the reader must know of these rows, in at most three sentences.
        explanation: what the columns mean, how the figures are computed and when they mislead.

    Raises:
        ValueError: a figure is NaN or infinite; the table function must give null and a reason.
    """

    title: str
    frame: pl.DataFrame
    notes: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for column in self.frame.iter_columns():
            if column.dtype.is_float() and not all(map(math.isfinite, column.drop_nulls())):
                raise ValueError(f"column {column.name} of '{self.title}' holds NaN or infinity")

    def counted_from_one(self) -> "Table":
        """The table for people, who count repeats and attempts from 1."""
        shown = [pl.col(name) + 1 for name in _FROM_ZERO if name in self.frame.columns]
        return replace(self, frame=self.frame.with_columns(shown)) if shown else self
