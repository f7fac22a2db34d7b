"""`fleetrank init`: a workspace to start from."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.errors import UsageError
from orchestrator.workspace import Workspace

_TEMPLATES = "templates"
_FILES = ("cluster.yaml", "sweeps/example.yaml", "README.md", ".gitignore")
_FOLDERS = ("sweeps", "devices", "cards")


def init(
    folder: Annotated[Path, typer.Argument(help="The folder to make; may exist.")],
) -> None:
    """Make a workspace: an example sweep, a cluster file and folders for devices and cards."""
    workspace = init_workspace(folder)
    print(f"{workspace.root} is a workspace; next:")
    print(f"  cd {workspace.root}")
    print("  fleetrank doctor")
    print("  fleetrank sweep run sweeps/example.yaml")


def init_workspace(folder: Path) -> Workspace:
    """Writes the files of a new workspace; files that are there already stay as they are.

    Raises:
        UsageError: it is a workspace already, or cannot be written.
    """
    if (folder / "cluster.yaml").exists():
        raise UsageError(f"{folder} is a workspace already", "use it, or name another folder")
    templates = resources.files("orchestrator").joinpath(_TEMPLATES)
    try:
        for name in _FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            target = folder / name
            if not target.exists():
                # A template's name has no leading dot and no folder: packaging skips neither.
                source = templates.joinpath(Path(name).name.removeprefix("."))
                target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made a workspace: {error.strerror}", "name another folder"
        ) from error
    return Workspace.at(folder)
