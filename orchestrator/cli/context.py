"""The shared options of a command, and its turn to compute on this host.

No measurement waits for reading. A command that reads results runs at the lowest priority with one
thread for linear algebra. It is announced, so that rows measured beside it get a flag. It waits for
the end of a repeat before it starts and between its steps. Most reading is over in a moment, so
only work of more than about a second waits.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.foundation.lease import (
    LONGEST_READING_WAIT_S,
    Use,
    host_lease,
    reading_beside_measurements,
)
from fleetrank.foundation.own_process import lower_priority
from fleetrank.orchestrator.compute.child import ONE_BLAS_THREAD
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.workspace import Workspace, default_root, is_workspace

Now = Annotated[
    bool, typer.Option("--now", help="Do not wait for a measurement; this may disturb it.")
]
_READING = frozenset({"faster", "report", "predict", "query"})
_READING_RESULTS = frozenset({"exclude", "export", "import", "verify"})
_TAKES_LEASE = frozenset({"--repair", "workspace", "--from=workspace"})
"""With one of these `results verify` and `import` take the host's lease: measurements wait for
them, so they keep their speed."""

SHORT_S = 1.0
"""Less work is done beside a measurement: it is about what loading the libraries takes."""
_CELL_S = 1e-3
"""Seen for tables with random draws, transfer to choose: 0.2 to 3 s for 78 to 3,300 cells
(model x platform); at 36,000 cells half of it."""


def is_reading(words: Sequence[str]) -> bool:
    """Whether a command line, without the shared options, reads results and takes no lease."""
    command, *rest = words or [""]
    is_of_results = command == "results" and not _READING_RESULTS.isdisjoint(rest[:1])
    return (command in _READING or is_of_results) and _TAKES_LEASE.isdisjoint(rest)


def settle_for_reading(words: Sequence[str]) -> None:
    """Prepares this process for a command line that reads; before NumPy is imported."""
    if is_reading(words):
        lower_priority()
        os.environ |= ONE_BLAS_THREAD


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CliContext:
    """The shared options of one call.

    Attributes:
        given_root: value of `--workspace`; `None` searches the current folder and those above it.
        verbose: 0, 1 (`-v`: progress of single steps) or 2 (`-vv`: debug messages).
        debug: print the traceback of an error.
    """

    given_root: Path | None = None
    verbose: int = 0
    debug: bool = False

    @property
    def workspace(self) -> Workspace:
        """The workspace to work in.

        Raises:
            UsageError: no workspace was found.
        """
        return Workspace.find() if self.given_root is None else Workspace.at(self.given_root)

    @property
    def found(self) -> Workspace | None:
        """The workspace; `None` if no folder is named and none here is one.

        Raises:
            UsageError: the named folder is not a workspace.
        """
        try:
            return self.workspace
        except UsageError:
            if self.given_root is not None:
                raise
            return None

    @property
    def folder(self) -> Path:
        """The workspace's root, or the current folder for commands that need no workspace."""
        found = self.found
        return Path.cwd() if found is None else found.root


_current = CliContext()


def current() -> CliContext:
    """The context of the command that is running."""
    return _current


def set_current(context: CliContext) -> None:
    """Stores the context; `main` calls it before a command runs."""
    global _current  # noqa: PLW0603 - one process runs one command
    _current = context


def settle_workspace() -> Workspace:
    """The workspace, or else the user's default one, which is made when it is first needed.

    It then counts as named, so that commands in messages name it too.

    Raises:
        UsageError: the named folder is not a workspace, or the default cannot be made.
    """
    if (found := current().found) is not None:
        return found
    root = default_root()
    workspace = Workspace.at(root) if is_workspace(root) else Workspace.init(root)
    print(f"not in a workspace: {root} is used", file=sys.stderr)
    set_current(replace(current(), given_root=root))
    return workspace


def readable_workspace() -> Workspace:
    """The workspace, or else the user's default one if it exists: for commands that only read.

    Raises:
        UsageError: there is neither, or the named folder is not a workspace.
    """
    return settle_workspace() if is_workspace(default_root()) else current().workspace


def host_turn(command: str) -> AbstractContextManager[bool]:
    """Holds the host's lease while a command works; explains a long wait; Ctrl-C ends the wait."""
    return host_lease(
        f"`fleetrank {command}`",
        use=Use.WORK,
        on_wait=lambda message: print(message, file=sys.stderr),
    )
