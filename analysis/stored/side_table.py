"""A side table: stored results that are not measurements of a cell, such as evaluations."""

from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.stored.column import STR, Column, column

SWEEP_ID = column("sweep_id", STR, "sweep that the row belongs to; null without a sweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTable:
    """One kind of stored results beside the measurements.

    Attributes:
        name: of its folder, of its view for SQL, and of `results export --table`.
        doc: one sentence about its rows.
        own: its columns after `sweep_id`, which every side table has.
    """

    name: str
    doc: str
    own: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns in their order."""
        return (SWEEP_ID, *self.own)

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Name and type of every column."""
        return {one.name: one.dtype for one in self.columns}
