"""When a command that reads results takes its turn on this host, and when it starts at once.

Reading disturbs a measurement on this host as any work does, in every workspace. Most reading is
over in a moment, so only work of more than about a second waits.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.orchestrator.cli.context import host_turn

Now = Annotated[
    bool, typer.Option("--now", help="Do not wait for a measurement; this may disturb it.")
]

SHORT_S = 1.0
"""Less work is done beside a measurement: it is about what loading the libraries takes."""
_CELL_S = 1e-3
"""Seen for tables with random draws, transfer to recommend: 0.2 to 3 s for 78 to 3,300 cells
(model x platform); at 36,000 cells half of it."""


class Work(StrEnum):
    """What a command does with the stored rows."""

    ROWS = "rows"
    """It goes through the rows."""
    CHECKSUMS = "checksums"
    """It reads the rows and their journal again, and compares them."""
    PAIRS = "pairs"
    """It compares platforms, with random draws."""
    EVERY_TABLE = "every table"
    """It makes all tables, which takes more than a second for any results."""


_ROW_S = {Work.ROWS: 1e-5, Work.CHECKSUMS: 1e-4, Work.PAIRS: 1e-5}
"""Seen: 5 to 20 s for 10^6 rows by SQL, a comparison or an export; 6 s for a journal of 10^5."""


def reading_turn(
    command: str, results: Path, sweeps: Sequence[str] = (), *, work: Work, now: bool
) -> AbstractContextManager[bool]:
    """The turn of a command that reads results; fails at once if there are none.

    Args:
        command: the user's command.
        results: the results folder.
        sweeps: sweeps that must have rows; empty for all sweeps.
        work: what is done with the rows.
        now: the user does not want to wait.

    Raises:
        NoDataError: there are no measurements, or a sweep has none.
    """
    from fleetrank.analysis.stored.load import stored_parts

    parts = stored_parts(results, sweep=tuple(sweeps) or None)
    return turn_for(command, parts, work=work, now=now)


def turn_for(
    command: str, parts: Sequence[Path], *, work: Work, now: bool
) -> AbstractContextManager[bool]:
    """The host's turn if the work on these files is long; a block without a wait if it is short."""
    is_short = work is not Work.EVERY_TABLE and work_s(parts, work) < SHORT_S
    return nullcontext(True) if now or is_short else host_turn(command, may_skip=True)


def work_s(parts: Sequence[Path], work: Work) -> float:
    """About how many seconds of one processor core a command needs for the rows of these files.

    0 if a file cannot be read: the command itself reports it.
    """
    import polars as pl

    if not parts:
        return 0.0
    rows = pl.scan_parquet(list(parts), missing_columns="insert", extra_columns="ignore")
    cells = pl.struct("model", "platform_key").n_unique()
    try:
        n_rows = int(rows.select(pl.len()).collect().item())
        # Counting the cells of many rows takes long, and they are long work already.
        seconds = _ROW_S[work] * n_rows
        is_counted = work is Work.PAIRS and seconds < SHORT_S
        n_cells = int(rows.select(cells).collect().item()) if is_counted else 0
    except (pl.exceptions.PolarsError, OSError):
        return 0.0
    return seconds + _CELL_S * n_cells
