"""The turn of a command to compute on this host beside measurements."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path

from fleetrank.foundation.reading_beside import LONGEST_READING_WAIT_S, reading_beside_measurements

SHORT_S = 1.0
"""Less work is done beside a measurement: it is about what loading the libraries takes."""
_CELL_S = 1e-3
"""Seen for tables with random draws, transfer to choose: 0.2 to 3 s for 78 to 3,300 cells
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
    results: Path, sweeps: Sequence[str] = (), *, work: Work, now: bool | None
) -> AbstractContextManager[None]:
    """The turn of a command that reads results; fails at once if there are none.

    Args:
        results: the results folder.
        sweeps: sweeps that must have rows; empty for all sweeps.
        work: what is done with the rows.
        now: the user does not want to wait; `None` for a command without this option.

    Raises:
        NoDataError: there are no measurements, or a sweep has none.
    """
    from fleetrank.analysis.stored.load import stored_parts

    parts = stored_parts(results, sweep=tuple(sweeps) or None)
    return turn_for(parts, work=work, now=now)


def turn_for(
    parts: Sequence[Path], *, work: Work, now: bool | None
) -> AbstractContextManager[None]:
    """Reading of these files, announced; it waits for measurements only if it is long work."""
    is_short = work is not Work.EVERY_TABLE and work_s(parts, work) < SHORT_S
    end = "" if now is None else "; add --now to start at once"

    def say(message: str) -> None:
        print(message + (end if message.startswith("waiting") else ""), file=sys.stderr)

    limit_s = 0.0 if now or is_short else LONGEST_READING_WAIT_S
    return reading_beside_measurements(limit_s=limit_s, say=say)


def work_s(parts: Sequence[Path], work: Work) -> float:
    """About how many seconds of one processor core a command needs for the rows of these files.

    0 if a file cannot be read: the command itself reports it.
    """
    import polars as pl

    if not parts or not all(path.is_file() for path in parts):
        return 0.0
    rows = pl.scan_parquet(
        list(parts), glob=False, missing_columns="insert", extra_columns="ignore"
    )
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
