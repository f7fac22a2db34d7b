"""`fleetrank cluster`: shows the hosts that sweeps can run on."""

from dataclasses import asdict
from typing import Annotated

import typer

from fleetrank.foundation.strict_json import json_text
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.errors import NothingToDoError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _cluster() -> None:
    """Makes `status` a subcommand: Typer drops the name of an app's only command."""


@app.command()
def status(
    cluster: Annotated[
        str, typer.Option(metavar="ADDRESS", help="IP:PORT of the head, or auto.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Show hosts, devices, versions and problems."""
    from fleetrank.orchestrator.sweep.cluster_status import read_cluster_status

    found = read_cluster_status(current().workspace, cluster)
    if as_json:
        print(json_text(found.as_plain(), indent=2))
    else:
        print(f"dashboard  {found.dashboard or 'none: not started, or its packages are missing'}")
        print(f"this host  {found.here or 'not a device host'}\n")
        print_table([host.as_row() for host in found.hosts], as_json=False)
        print()
        print_table([asdict(device) for device in found.devices], as_json=False)
        for problem in found.problems:
            print(f"\n! {problem}")
    if not found.hosts:
        raise NothingToDoError(
            "this cluster has no usable host",
            "start raylets with the label fleetrank-host=NAME; see docs/cluster.md",
        )
