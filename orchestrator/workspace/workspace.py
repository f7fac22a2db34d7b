"""A workspace: the folder with a user's sweeps, devices, model cards, files and results."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Self

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.files import user_data
from fleetrank.foundation.installation import host_hash
from fleetrank.orchestrator.errors import UsageError

LOCAL_CPU = "local-cpu"
"""The name that means this host's CPU on every host, so that a sweep file can be shared."""
_MARKER = "cluster.yaml"
"""The file that marks a folder as a workspace."""
_FOLDERS = ("sweeps", "devices", "cards")
_FILES = {
    # Packaging skips files whose name begins with a dot.
    "gitignore": ".gitignore",
    "README.md": "README.md",
    "example.yaml": "sweeps/example.yaml",
    # Written last, because this file makes the folder a workspace.
    "cluster.yaml": _MARKER,
}
"""Maps a template to its path in a new workspace."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The paths of a workspace; creates no folders.

    Attributes:
        root: absolute.
    """

    root: Path

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
    def init(cls, folder: Path) -> Self:
        """Creates a workspace with an example sweep; existing files are not changed.

        Raises:
            UsageError: the folder is already a workspace, or is not writable.
        """
        if (folder / _MARKER).exists():
            raise UsageError(
                f"{folder.resolve()} is already a workspace", "use it, or name another folder"
            )
        templates = resources.files("fleetrank.orchestrator").joinpath("templates")
        with failing_as(
            UsageError, f"{folder} cannot be made a workspace", "name another folder", OSError
        ):
            for name in _FOLDERS:
                (folder / name).mkdir(parents=True, exist_ok=True)
            for template, target in _FILES.items():
                if not (folder / target).exists():
                    text = templates.joinpath(template).read_text(encoding="utf-8")
                    (folder / target).write_text(text, encoding="utf-8")
        return cls.at(folder)

    @classmethod
    def find(cls, start: Path | None = None) -> Self:
        """Finds the workspace that contains `start` (default: the current folder).

        Raises:
            UsageError: neither the folder nor any folder above it is a workspace.
        """
        folder = (start or Path.cwd()).resolve()
        for candidate in (folder, *folder.parents):
            if is_workspace(candidate):
                return cls(candidate)
        default = default_root()
        known = f"; {default} has what `run` and `ab` measured elsewhere"
        raise UsageError(
            f"{folder} is not in a workspace: no {_MARKER} here or above",
            "make one with `fleetrank init DIR`, or name one with `workspace=DIR`"
            + (known if is_workspace(default) else ""),
        )

    @classmethod
    def at(cls, root: Path) -> Self:
        """Uses exactly this folder, as `--workspace` does.

        Raises:
            UsageError: the folder is not a workspace.
        """
        if not is_workspace(root):
            raise UsageError(
                f"{root} is not a workspace: it has no {_MARKER}",
                f"make it one with `fleetrank init {root}`",
            )
        return cls(root.resolve())


def is_workspace(folder: Path) -> bool:
    """Whether the folder itself is a workspace."""
    return (folder / _MARKER).is_file()


def default_root() -> Path:
    """The folder, in the user's own data, of commands that need no workspace; may not exist yet."""
    return user_data()


def stored_name(device: str) -> str:
    """The name of a device in rows: `local-cpu` is the CPU of this host."""
    return f"cpu-{host_hash()[:6]}" if device == LOCAL_CPU else device
