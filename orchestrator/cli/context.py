"""What every command is given by the options that all of them share."""

from dataclasses import dataclass
from pathlib import Path

from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class CliContext:
    """The shared options of one call.

    Attributes:
        given_root: of `--workspace`; `None` looks for the workspace from the current folder up.
        verbose: 0, 1 (`-v`: progress of single steps) or 2 (`-vv`: debugging lines).
        debug: print the traceback of an error.
    """

    given_root: Path | None = None
    verbose: int = 0
    debug: bool = False

    @property
    def workspace(self) -> Workspace:
        """The workspace to work in.

        Raises:
            UsageError: there is none.
        """
        return Workspace.find() if self.given_root is None else Workspace.at(self.given_root)

    @property
    def folder(self) -> Path:
        """The workspace's root, or the current folder for commands that need no workspace."""
        try:
            return self.workspace.root
        except UsageError:
            if self.given_root is not None:
                raise
            return Path.cwd()


_current = CliContext()


def current() -> CliContext:
    """The context of the command that is running."""
    return _current


def set_current(context: CliContext) -> None:
    """Told by `main` before a command runs."""
    global _current  # noqa: PLW0603 - one process runs one command
    _current = context
