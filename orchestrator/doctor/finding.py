"""What one check found, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is: an error stops a sweep, a warning makes its numbers worse."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor; `remedy` is `None` exactly when the level is ok."""

    check: str
    level: Level
    message: str
    remedy: str | None = None


def ok(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, level=Level.OK, message=message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """A sweep runs, but with worse numbers or fewer devices."""
    return Finding(check=check, level=Level.WARNING, message=message, remedy=remedy)


def error(check: str, message: str, remedy: str) -> Finding:
    """A sweep cannot run."""
    return Finding(check=check, level=Level.ERROR, message=message, remedy=remedy)
