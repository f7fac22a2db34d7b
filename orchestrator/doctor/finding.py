"""The result of one check, and its remedy."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding: an error stops a sweep, a warning reduces its quality."""

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
    """No action is needed."""
    return Finding(check=check, level=Level.OK, message=message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """A sweep runs, but with lower quality or fewer devices."""
    return Finding(check=check, level=Level.WARNING, message=message, remedy=remedy)


def error(check: str, message: str, remedy: str) -> Finding:
    """A sweep cannot run."""
    return Finding(check=check, level=Level.ERROR, message=message, remedy=remedy)
