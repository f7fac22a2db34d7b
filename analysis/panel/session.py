"""One selection of the stored attempts, and the arrays that several statistics share."""

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar, cast

import polars as pl

from fleetrank.analysis.panel.panel import Panel, Repeats, comparable_scope, panel_of, repeats_of
from fleetrank.analysis.stored.scope import Scope, select_attempts, select_cells
from fleetrank.analysis.stored.selection import Selection

T = TypeVar("T")


class Session:
    """The selected rows; each part is made on first use and kept as long as the session.

    Drop the session to free its arrays: those of a thousand models and platforms take hundreds
    of MB.
    """

    def __init__(
        self, frame: pl.LazyFrame, selection: Selection, *, cells: Scope | None = None
    ) -> None:
        """Creates it without reading a row.

        Args:
            frame: every stored attempt, as `load.load_measurements` scans them.
            selection: the rows to use, and the settings of a table.
            cells: the selected cells if the caller has them already.
        """
        self.frame = frame
        self.selection = selection
        self._cells = cells
        self._made: dict[Callable[..., object], object] = {}

    @cached_property
    def cells(self) -> Scope:
        """Values of the selected cells, and the notes of every table.

        Raises:
            NoDataError: the selection has no measurements, or every attempt failed.
        """
        return self._cells or select_cells(self.frame, self.selection)

    @property
    def attempts(self) -> pl.LazyFrame:
        """All selected attempts that are not excluded, including failures."""
        return select_attempts(self.frame, self.selection)

    @cached_property
    def comparable(self) -> Scope:
        """Selected cells that can be ranked, with `identity`, and the notes of every table.

        Raises:
            NoDataError: no row matches the selection.
            NotComparableError: no platform holds comparable rows.
        """
        return comparable_scope(self.cells)

    @cached_property
    def panel(self) -> Panel:
        """The comparable cells as arrays; raises the errors of `comparable`."""
        return panel_of(self.comparable)

    @cached_property
    def repeats(self) -> Repeats:
        """The single measurements of the panel; raises the errors of `comparable`."""
        return repeats_of(self.panel, self.comparable.cells, self.attempts)

    def once(self, make: Callable[["Session"], T]) -> T:
        """What `make` gives for this session; a second call returns the same object."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast("T", self._made[make])

    def narrowed(self, kept: pl.Expr) -> "Session":
        """A session of some of the rows, with the same selection."""
        return Session(self.frame.filter(kept), self.selection)

    def asked(self, selection: Selection) -> "Session":
        """A session of the same frame with another selection; equal rows are not read again."""
        if selection == self.selection:
            return self
        cells = self.__dict__.get("cells") if selection.rows == self.selection.rows else None
        return Session(self.frame, selection, cells=cells)
