"""`fleetrank doctor`: checks whether this machine is ready for benchmarking."""

from dataclasses import asdict

import typer

from fleetrank.foundation.strict_json import json_text
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson
from fleetrank.orchestrator.doctor.finding import Finding, Level

_MARK = {Level.OK: "ok     ", Level.WARNING: "warning", Level.ERROR: "error  "}
_EXIT_ERROR = 4


def doctor(
    as_json: AsJson = False,
) -> None:
    """Check runtimes, exporters, disk, cores, load, priority, confinement, Ray, adb and GPU."""
    from fleetrank.orchestrator.doctor.host_checks import check_devices, check_host
    from fleetrank.orchestrator.doctor.software_checks import check_software

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
            print(f"{'':9}{'':{width}}  -> {finding.remedy}")
