"""The shared options of a command, and its turn to compute on this host."""

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from fleetrank.foundation.lease import host_lease
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.workspace import Workspace, default_root, is_workspace


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
        f"`fleetrank {command}`", on_wait=lambda message: print(message, file=sys.stderr)
    )
