"""The command `where`: names the workspace."""

from fleetrank.orchestrator.cli.context import current


def where() -> None:
    """Print the folder of the workspace."""
    print(current().workspace.root)
