"""Errors of the server, and which HTTP status each error of the project has."""

from collections.abc import Mapping
from types import MappingProxyType

from fleetrank.orchestrator.compute.jobs import RefusedError
from fleetrank.orchestrator.errors import OrchestratorError


class BusyError(OrchestratorError):
    """The server is busy, or a measurement runs on this host: try again; status 503."""


class NotFoundError(OrchestratorError):
    """The requested thing does not exist: status 404."""


RETRY_AFTER_S = 5
"""Value of `Retry-After` of a busy server: longer than most computations."""
INTERNAL = 500
_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "UsageError": 400,
        "QueryError": 400,
        "AnalysisError": 400,
        "NoDataError": 404,
        "NotFoundError": 404,
        "NothingToDoError": 404,
        "NotComparableError": 409,
        "BusyError": 503,
    }
)


def status_of(error: OrchestratorError) -> int:
    """Returns the HTTP status of an error; 500 if the request did not cause it."""
    kind = error.kind if isinstance(error, RefusedError) else type(error).__name__
    return _STATUSES.get(kind, INTERNAL)
