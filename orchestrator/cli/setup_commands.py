"""`fleetrank init`, `doctor` and `cluster`: make a workspace, check this machine and a cluster."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.foundation.codec import json_text
from fleetrank.foundation.errors import with_flags
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.listing import AsJson, print_table
from fleetrank.orchestrator.doctor import Finding, Level
from fleetrank.orchestrator.errors import NothingToDoError
from fleetrank.orchestrator.workspace.workspace import Workspace

_MARK = {Level.OK: "ok     ", Level.WARNING: "warning", Level.ERROR: "error  "}
_EXIT_ERROR = 4

cluster = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def init(
    folder: Annotated[Path, typer.Argument(help="The folder to create; may exist.")],
    as_json: AsJson = False,
) -> None:
    """Create a workspace: an example sweep, a cluster file, and folders for devices and cards."""
    workspace = Workspace.init(folder)
    if as_json:
        print(json_text({"workspace": str(workspace.root)}, indent=2))
        return
    print(f"{workspace.root} is a workspace. Next steps:")
    print(f"  cd {workspace.root}")
    print("  fleetrank doctor")
    print("  fleetrank sweep run sweeps/example.yaml")


def doctor(
    as_json: AsJson = False,
) -> None:
    """Check runtimes, exporters, disk, cores, load, priority, confinement, Ray, adb and GPU."""
    from fleetrank.orchestrator.doctor import check_devices, check_host, check_software

    findings = [*check_host(current().workspace.root), *check_software(), *check_devices()]
    if as_json:
        print(json_text([asdict(finding) for finding in findings], indent=2))
    else:
        _print_lines(findings)
    if any(finding.level is Level.ERROR for finding in findings):
        raise typer.Exit(_EXIT_ERROR)


def _print_lines(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        print(f"{_MARK[finding.level]}  {finding.check:<{width}}  {finding.message}")
        if finding.remedy is not None:
            print(f"{'':9}{'':{width}}  -> {with_flags(finding.remedy)}")


@cluster.callback()
def _cluster() -> None:
    """Makes `status` a subcommand: Typer drops the name of an app's only command."""


@cluster.command()
def status(
    cluster: Annotated[
        str, typer.Option(metavar="ADDRESS", help="IP:PORT of the head, or auto.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Show hosts, devices, versions and problems."""
    from fleetrank.orchestrator.sweep.dispatch_backend import read_cluster_status

    found = read_cluster_status(current().workspace, cluster)
    if as_json:
        print(json_text(asdict(found), indent=2))
    else:
        print(f"dashboard  {found.dashboard or 'none: not started, or its packages are missing'}")
        print(f"this host  {found.here or 'not a device host'}\n")
        print_table(found.hosts, as_json=False)
        print()
        print_table(found.devices, as_json=False)
        for problem in found.problems:
            print(f"\n! {problem}")
    if not found.hosts:
        raise NothingToDoError(
            "this cluster has no usable host",
            "start raylets with the label fleetrank-host=NAME; see docs/cluster.md",
        )
