"""One finding of the doctor, with its remedy.

`doctor_host`, `doctor_software` and `doctor_packages` make them.
"""

from dataclasses import dataclass
from enum import StrEnum

RUNTIME = "runtime"
"""What the lines of runtimes begin with, fleetrank's own and those of other packages."""


class Severity(StrEnum):
    """Severity of a finding: an error stops a sweep, a warning reduces its quality."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor; `remedy` is `None` exactly when the level is ok."""

    check: str
    level: Severity
    message: str
    remedy: str | None = None


def ok(check: str, message: str) -> Finding:
    """No action is needed."""
    return Finding(check=check, level=Severity.OK, message=message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """A sweep runs, but with lower quality or fewer devices."""
    return Finding(check=check, level=Severity.WARNING, message=message, remedy=remedy)


def error(check: str, message: str, remedy: str) -> Finding:
    """A sweep cannot run."""
    return Finding(check=check, level=Severity.ERROR, message=message, remedy=remedy)
