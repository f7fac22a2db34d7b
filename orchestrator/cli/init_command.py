"""`fleetrank init`: a workspace to start from."""

from pathlib import Path
from typing import Annotated

import typer

from fleetrank.orchestrator.workspace.workspace import Workspace


def init(
    folder: Annotated[Path, typer.Argument(help="The folder to make; may exist.")],
) -> None:
    """Make a workspace: an example sweep, a cluster file and folders for devices and cards."""
    workspace = Workspace.init(folder)
    print(f"{workspace.root} is a workspace; next:")
    print(f"  cd {workspace.root}")
    print("  fleetrank doctor")
    print("  fleetrank sweep run sweeps/example.yaml")
