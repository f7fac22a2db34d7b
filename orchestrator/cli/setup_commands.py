"""`fleetrank init` and `doctor`: make a workspace, check this machine or a cluster."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.wording import count_of, with_flags
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.listing import AsJson, print_table
from fleetrank.orchestrator.doctor import Finding, Severity
from fleetrank.orchestrator.doctor_software import LIBRARIES
from fleetrank.orchestrator.errors import NothingToDoError
from fleetrank.orchestrator.workspace.workspace import Workspace, default_root

_MARK = {Severity.OK: "ok     ", Severity.WARNING: "warning", Severity.ERROR: "error  "}
_WIDTH = max(len(one.check) for one in LIBRARIES)
_MOST_TO_DO = 2
"""More at once is not done; the next call names the others."""
_EXIT_ERROR = 4


def init(
    folder: Annotated[Path, typer.Argument(help="The folder to create; may exist.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Create a workspace, in the current folder unless you name one.

    It has an example sweep, a cluster file, and folders for devices and cards.
    """
    workspace = Workspace.init(folder)
    if as_json:
        print(json_text({"workspace": str(workspace.root)}, indent=2))
        return
    print(f"{workspace.root} is a workspace. Next steps:")
    if workspace.root != Path.cwd():
        print(f"  cd {workspace.root}")
    print("  fleetrank doctor")
    print("  fleetrank sweep run sweeps/example.yaml")


def doctor(
    *,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Check this Ray cluster instead, its hosts, devices and versions: IP:PORT of its "
            "head, or auto.",
        ),
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough", help="Also import PyTorch, exporters and converters, which load slowly."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine, or a cluster, is ready to measure.

    Runtimes, exporters, disk, cores, load, priority, confinement, adb and GPU. Extras of which
    nothing is installed are not mentioned.
    """
    if cluster is not None:
        _check_cluster(cluster, as_json=as_json)
        return
    from fleetrank.orchestrator.doctor_host import check_devices, check_host
    from fleetrank.orchestrator.doctor_packages import check_packages
    from fleetrank.orchestrator.doctor_software import check_software

    findings = []
    checks = (
        check_host(_folder()),
        check_software(is_thorough=thorough),
        check_devices(),
        check_packages(),
    )
    for check in checks:
        for finding in check:
            findings.append(finding)
            if not as_json:
                line = f"{_MARK[finding.level]}  {finding.check:<{_WIDTH}}  {finding.message}"
                print(line, flush=True)
    if as_json:
        print(json_text([asdict(finding) for finding in findings], indent=2))
    else:
        _conclude(findings)
    if any(finding.level is Severity.ERROR for finding in findings):
        raise typer.Exit(_EXIT_ERROR)


def _folder() -> Path:
    """Where results would be stored: the workspace, or what exists of the path to the default."""
    if (found := current().found) is not None:
        return found.root
    root = default_root()
    return next(folder for folder in (root, *root.parents) if folder.is_dir())


def _conclude(findings: Sequence[Finding]) -> None:
    """Prints what to do, errors first, or that there is nothing to do."""
    errors = [one for one in findings if one.level is Severity.ERROR]
    to_do = [*errors, *(one for one in findings if one.level is Severity.WARNING)]
    if not to_do:
        print("\nready")
        return
    print("\nnot ready, to do:" if errors else "\nready; for better figures:")
    for one in to_do[:_MOST_TO_DO]:
        print(f"  {one.check}: {with_flags(one.remedy or '')}")
    if len(to_do) > _MOST_TO_DO:
        print(f"  and {count_of(len(to_do) - _MOST_TO_DO, 'more thing')}, see --json")


def _check_cluster(address: str, *, as_json: bool) -> None:
    """Shows hosts, devices, versions and problems.

    Raises:
        NothingToDoError: no host can measure.
    """
    from fleetrank.orchestrator.sweep.cluster_status import read_cluster_status

    found = read_cluster_status(current().workspace, address)
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
        if found.hosts and not found.problems:
            print("\nready")
    if not found.hosts:
        raise NothingToDoError(
            "this cluster has no usable host",
            "start raylets with the label fleetrank-host=NAME; see docs/cluster.md",
        )
