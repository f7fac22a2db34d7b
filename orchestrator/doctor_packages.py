"""What other packages add, by entry points."""

from collections.abc import Iterator

from fleetrank.analysis.importers.importer import OUTSIDE_IMPORTERS
from fleetrank.device_agents.registry import OUTSIDE_KINDS
from fleetrank.device_agents.runtimes.runner import check_library
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.formats import OUTSIDE_RUNTIMES
from fleetrank.foundation.vocabulary import Runtime
from fleetrank.orchestrator.doctor import RUNTIME, Finding, ok, warning


def check_packages() -> Iterator[Finding]:
    """Lists every runtime, kind of device and importer of other packages; imports each of them."""
    for noun, family in (
        (RUNTIME, OUTSIDE_RUNTIMES),
        ("kind", OUTSIDE_KINDS),
        ("importer", OUTSIDE_IMPORTERS),
    ):
        for one in family.examined():
            check = f"{noun} {one.name}"
            try:
                if one.error is not None:
                    raise one.error
                if family is OUTSIDE_RUNTIMES:
                    check_library(Runtime(one.name))
                yield ok(check, f"of package {one.maker}")
            except FleetError as fault:
                yield warning(check, fault.message, fault.remedy)
