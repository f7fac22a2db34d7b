"""`fleetrank init`: creates a workspace."""

from pathlib import Path
from typing import Annotated

import typer

from fleetrank.orchestrator.workspace.workspace import Workspace


def init(
    folder: Annotated[Path, typer.Argument(help="The folder to create; may exist.")],
) -> None:
    """Create a workspace: an example sweep, a cluster file, and folders for devices and cards."""
    workspace = Workspace.init(folder)
    print(f"{workspace.root} is a workspace. Next steps:")
    print(f"  cd {workspace.root}")
    print("  fleetrank doctor")
    print("  fleetrank sweep run sweeps/example.yaml")
