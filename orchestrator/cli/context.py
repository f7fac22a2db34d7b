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
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.foundation.lease import Use, host_lease
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
