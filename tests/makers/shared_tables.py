"""Tables of one set of rows, for many assertions: each is made once, and all share their arrays."""

from dataclasses import replace

import polars as pl
from growth_rows import OF_GROWTH, OF_PRECISIONS, OF_READING, OF_SWEEPS, rows_for
from language_rows import OF_TOKENS

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import REQUESTS, Setting, TableRequest, session_table

NAMES = tuple(dict.fromkeys(request.name for request in REQUESTS))
"""Every part of every table."""


def words_with_rows(setting: Setting) -> tuple[str, ...]:
    """The words, but not axes in which the rows of `write_results` do not differ."""
    if setting.name == "along":
        return ("device", "runtime")
    return tuple(word for word in setting.words if (setting.name, word) != ("over", "threads"))


_WITH_MORE_ROWS = (OF_GROWTH, OF_READING, OF_TOKENS, OF_PRECISIONS, OF_SWEEPS)


class SharedTables:
    """Tables of measurements of images; tables that need it get more rows, or those of text."""

    def __init__(
        self, images: pl.LazyFrame, text: pl.LazyFrame, chosen: Selection, *, workload: str
    ) -> None:
        """Makes no table yet.

        Args:
            images: the rows, as `load_measurements` scans them.
            text: rows of language models, for the tables of tokens.
            chosen: the selection of every table.
            workload: what is chosen of `text`.
        """
        self._images = images
        self._text = text
        self._chosen = chosen
        self._workload = workload
        self._sessions: dict[tuple[str, ...], Session] = {}
        self._made: dict[TableRequest, Table] = {}

    def table(self, request: TableRequest) -> Table:
        """Raises the errors of `session_table`."""
        if request not in self._made:
            session = self._session_for(request.name)
            asked = session.asked(request.selection(session.selection))
            self._made[request] = session_table(request.name, asked)
        return self._made[request]

    def _session_for(self, table: str) -> Session:
        group = next((one for one in _WITH_MORE_ROWS if table in one), ())
        if group not in self._sessions:
            rows, chosen = self._images, self._chosen
            if group == OF_TOKENS:
                rows, chosen = self._text, replace(chosen, workload=self._workload)
            self._sessions[group] = Session(rows_for(table, rows).collect().lazy(), chosen)
        return self._sessions[group]
