"""A workspace: the folder that holds a user's sweeps, devices, model cards, files and results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orchestrator.errors import UsageError

_MARKER = "cluster.yaml"
"""The one file every workspace has; git worktrees and Ray users both keep it at the root."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Names the places of a workspace; makes none of them.

    Attributes:
        root: absolute.
    """

    root: Path

    @property
    def cluster_file(self) -> Path:
        """Ray's cluster-launcher file."""
        return self.root / _MARKER

    @property
    def sweeps(self) -> Path:
        """Folder of sweep specifications, `*.yaml`."""
        return self.root / "sweeps"

    @property
    def devices(self) -> Path:
        """Folder of device files, `*.yaml`, one per device."""
        return self.root / "devices"

    @property
    def cards(self) -> Path:
        """Folder of the user's own model cards, `*.toml`."""
        return self.root / "cards"

    @property
    def artifacts(self) -> Path:
        """Cache of exported files."""
        return self.root / "artifacts"

    @property
    def results(self) -> Path:
        """Folder of journals, Parquet files and sweep records."""
        return self.root / "results"

    @classmethod
    def find(cls, start: Path | None = None) -> Self:
        """Finds the workspace that `start` (default: the current folder) lies in.

        Raises:
            UsageError: neither the folder nor one above it is a workspace.
        """
        folder = (start or Path.cwd()).resolve()
        for candidate in (folder, *folder.parents):
            if (candidate / _MARKER).is_file():
                return cls(candidate)
        raise UsageError(
            f"{folder} is not in a workspace: no {_MARKER} here or above",
            "make one with `fleetrank init DIR`, or name one with --workspace DIR",
        )

    @classmethod
    def at(cls, root: Path) -> Self:
        """Takes exactly this folder, as `--workspace` does.

        Raises:
            UsageError: the folder is not a workspace.
        """
        if not (root / _MARKER).is_file():
            raise UsageError(
                f"{root} is not a workspace: it has no {_MARKER}",
                f"make it one with `fleetrank init {root}`",
            )
        return cls(root.resolve())
