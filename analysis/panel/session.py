"""One selection of the stored attempts, and the arrays that several statistics share."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TypeVar, cast

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.panel import Panel, comparable_scope, panel_of
from fleetrank.analysis.panel.repeats import Repeats
from fleetrank.analysis.rounds import RoundValues, round_values
from fleetrank.analysis.stored.chosen_workload import known_workload, usual_workload, workloads_of
from fleetrank.analysis.stored.exclusions import (
    excluded_column,
    exclusion_notes,
    not_excluded,
    read_exclusions,
)
from fleetrank.analysis.stored.name_patterns import ANY_PRECISION, split_precision
from fleetrank.analysis.stored.named_precision import named_by_precision, of_precisions
from fleetrank.analysis.stored.scope import (
    Scope,
    of_every_workload,
    select_attempts,
    select_cells,
    within_memory,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.stored.side_table import SideTable
from fleetrank.analysis.stored.side_tables import read_side
from fleetrank.foundation.workload import Workload

T = TypeVar("T")
_OF_EXCLUSIONS = {"model", "platform_key", "workload"}
"""An exclusion names some of them, beside the sweep."""


class _Rows:
    """What does not depend on source, target, seed and settings: the same for equal rows."""

    def __init__(
        self,
        frame: pl.LazyFrame,
        selection: Selection,
        cells: Scope | None,
        whole: "_Rows | None" = None,
    ) -> None:
        self._frame = frame
        self._selection = selection
        self._cells = cells
        self._whole = whole
        self.made: dict[Callable[..., object], object] = {}

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        return workloads_of(of_every_workload(self._frame, self._selection))

    @cached_property
    def of_workload(self) -> Selection:
        if self._whole is None:
            chosen = self._selection.workload or usual_workload(self.workloads)
            return replace(self._selection, workload=chosen)
        return replace(self._selection, workload=self._whole.of_workload.workload)

    @property
    def attempts(self) -> pl.LazyFrame:
        return select_attempts(self._frame, self.of_workload)

    @cached_property
    def cells(self) -> Scope:
        # Only a selection that names no workload gets the note on the other ones.
        chosen = self._selection if self._whole is None else self.of_workload
        known = () if chosen.workload else self.workloads
        return self._cells or select_cells(self._frame, chosen, known)

    @property
    def every(self) -> pl.LazyFrame:
        """Every stored attempt, also of a part of the rows."""
        return self._frame if self._whole is None else self._whole.every

    @cached_property
    def rounds(self) -> RoundValues:
        return round_values(self.every, self.attempts)

    @cached_property
    def compared(self) -> pl.LazyFrame:
        return self.rounds.of_attempts(self.attempts)

    @cached_property
    def comparable(self) -> Scope:
        return self.rounds.of_cells(comparable_scope(self.cells))

    @cached_property
    def panel(self) -> Panel:
        allows = self._selection.allow_unlike_batch
        return panel_of(self.comparable, allows_unlike_batch=allows)

    @cached_property
    def repeats(self) -> Repeats:
        return Repeats(self.panel, self.comparable.cells, self.compared)


class Session:
    """The selected rows; each part is made on first use and kept as long as the session.

    Drop the session to free its arrays: those of a thousand models and platforms take hundreds
    of MB.
    """

    def __init__(
        self,
        frame: pl.LazyFrame,
        selection: Selection,
        *,
        cells: Scope | None = None,
        results: Path | None = None,
        is_named: bool = False,
    ) -> None:
        """Creates it without reading a row.

        Args:
            frame: every stored attempt, as `load.load_measurements` scans them.
            selection: the rows to use, and the settings of a table.
            cells: the selected cells if the caller has them already.
            results: the results folder that `frame` is of, for `side`; `None` without one.
            is_named: the models of `frame` are named with their precision already.
        """
        self._is_named = is_named or selection.precision == ANY_PRECISION
        self.frame = frame = frame if is_named else of_precisions(frame, selection, results)
        self.selection = selection
        self._rows = _Rows(frame, selection, cells)
        self._results = results
        self._made: dict[tuple[object, ...], object] = {}

    @property
    def workload(self) -> Workload:
        """The workload of all rows of the session.

        Raises:
            AnalysisError: the selection names none, and its rows have several.
        """
        return Workload.parse(str(self._rows.of_workload.workload))

    @property
    def workloads(self) -> tuple[str, ...]:
        """Every workload of the selected rows, in the order of lists."""
        return self._rows.workloads

    @property
    def cells(self) -> Scope:
        """Values of the selected cells, and the notes of every table.

        Raises:
            NoDataError: the selection has no measurements, or every attempt failed.
            AnalysisError: the selection names no workload, and its rows have several.
        """
        return self._rows.cells

    @property
    def attempts(self) -> pl.LazyFrame:
        """All selected attempts that are not excluded, including failures."""
        return self._rows.attempts

    @property
    def rounds(self) -> RoundValues:
        """The rounds that selected attempts are of, and the values that they give."""
        return self._rows.rounds

    @property
    def compared(self) -> pl.LazyFrame:
        """`attempts`, with the latency that ranks: see `rounds.RoundValues.adjusted`."""
        return self._rows.compared

    @property
    def comparable(self) -> Scope:
        """Selected cells that can be ranked, with `identity`, and the notes of every table.

        The latency of a model that took turns is without the effects of the host that its rounds
        had in common. The medians are in `cells`.

        Raises:
            NoDataError: no row matches the selection.
            NotComparableError: no platform holds comparable rows.
        """
        return self._rows.comparable

    @property
    def panel(self) -> Panel:
        """The comparable cells as arrays; raises the errors of `comparable`."""
        return self._rows.panel

    @property
    def repeats(self) -> Repeats:
        """The single measurements of the panel; raises the errors of `comparable`."""
        return self._rows.repeats

    def side(self, table: SideTable) -> pl.DataFrame:
        """The rows of a side table, of the selected sweeps and not excluded by hand.

        The rest of the selection does not apply. Rows without a sweep, such as evaluations, are
        all there. Empty if nothing is stored, or if the session has no results folder.

        Raises:
            DamagedPartError: a file of the side table is damaged.
            BadFileError: the record of exclusions is damaged.
        """
        if self._results is None:
            return pl.DataFrame(schema=table.schema)
        rows, sweeps = read_side(self._results, table), self.selection.sweeps
        if self.selection.precision == ANY_PRECISION and "precision" in table.schema:
            rows = named_by_precision(rows)
        if sweeps:
            is_of_sweep = pl.col("sweep_id").is_null() | pl.col("sweep_id").is_in(sweeps)
            rows = rows.filter(is_of_sweep)
        if not set(rows.columns) >= _OF_EXCLUSIONS:
            return rows
        marked = rows.lazy().with_columns(excluded_column(read_exclusions(self._results)))
        return not_excluded(marked).select(rows.columns).collect()

    def once(self, make: Callable[..., T], *given: Hashable) -> T:
        """What `make` gives for this session and arguments; made once, and kept."""
        key = (make, *given)
        if key not in self._made:
            self._made[key] = make(self, *given)
        return cast("T", self._made[key])

    def once_of_rows(self, make: Callable[["Session"], T]) -> T:
        """What `make` gives for these rows, made once for all sessions of equal rows.

        It must not read source, target, seed or settings of the selection.
        """
        if make not in self._rows.made:
            self._rows.made[make] = make(self)
        return cast("T", self._rows.made[make])

    def narrowed(self, kept: pl.Expr) -> "Session":
        """A session of some of the rows, with the same selection and workload.

        A part of the rows may lack the workload that all of them imply.
        """
        part = self._on(self.frame.filter(kept), self.selection)
        part._rows = _Rows(part.frame, part.selection, None, self._rows)
        return part

    def of_workload(self, workload: str) -> "Session":
        """A session of the same selection, of this workload; made once a session."""
        return self.once(_of_workload, workload)

    def cells_of(self, workload: str) -> pl.DataFrame | None:
        """The selected cells of one workload; `None` if every attempt failed or is left out."""
        try:
            return self.of_workload(workload).cells.cells
        except NoDataError:
            return None

    @property
    def unlimited(self) -> "Session":
        """A session of the same selection without its limit of memory; made once a session.

        What the limit drops was measured, and is not a cell that failed.
        """
        return self.asked(replace(self.selection, max_memory_mib=None))

    @property
    def chosen_workloads(self) -> tuple[str, ...]:
        """The workload that the selection names, or every one of its rows."""
        chosen = self.selection.workload
        return self.workloads if chosen is None else (chosen,)

    def dropped_notes(self, workloads: Iterable[str]) -> tuple[str, ...]:
        """Notes on rows of some workloads that are excluded by hand, or above a limit of memory."""
        wanted, limit = list(workloads), self.selection.max_memory_mib
        rows = of_every_workload(self.frame, self.selection)
        excluded = exclusion_notes(rows.filter(known_workload().is_in(wanted)))
        if limit is None:
            return excluded
        known = [cells for one in wanted if (cells := self.unlimited.cells_of(one)) is not None]
        return (*within_memory(pl.concat(known), limit)[1], *excluded)

    def _on(self, frame: pl.LazyFrame, selection: Selection) -> "Session":
        return Session(frame, selection, results=self._results, is_named=self._is_named)

    def asked(self, selection: Selection) -> "Session":
        """A session of the same frame with another selection; made once, and kept.

        Equal rows share their arrays.
        """
        return self if selection == self.selection else self.once(_asked, selection)


def _asked(session: Session, selection: Selection) -> Session:
    found = session._on(session.frame, selection)
    if selection.rows == session.selection.rows:
        found._rows = session._rows
    return found


def _of_workload(session: Session, workload: str) -> Session:
    found = session.asked(replace(session.selection, workload=workload))
    is_whole = session.selection.workload is None and session._rows.every is session.frame
    if is_whole and session.workloads == (workload,):
        # A name for the only workload leaves all rows, which may be read already.
        found._rows = session._rows
    return found


def once_a_session(make: Callable[[Session], T]) -> Callable[[Session], T]:
    """Makes what a function gives once a session; a second call returns the same object."""

    @wraps(make)
    def made(session: Session) -> T:
        return session.once(make)

    return made


def how_to_measure(a: str, b: str) -> str:
    """The remedy for two models, each perhaps with its precision, that no platform measured."""
    words = dict.fromkeys(word for name in (a, b) if (word := split_precision(name)[1]))
    if not words:
        return f"measure them here: `fleetrank ab {a} {b}`"
    return f"measure both in a sweep with `precision: [{', '.join(words)}]`"
