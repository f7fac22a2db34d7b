"""Errors of the server, and which HTTP status each error of the project has."""

from collections.abc import Mapping
from types import MappingProxyType

from fleetrank.orchestrator.compute.errors import RefusedError
from fleetrank.orchestrator.errors import OrchestratorError


class BusyError(OrchestratorError):
    """More is asked than is answered at once, or this host measures: ask again, status 503."""


class NotFoundError(OrchestratorError):
    """There is no such thing to look at: status 404."""


RETRY_AFTER_S = 5
"""What a busy server asks for: longer than most of what it computes."""
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
    """The status that an error is answered with; what nobody asked for wrongly is a 500."""
    kind = error.kind if isinstance(error, RefusedError) else type(error).__name__
    return _STATUSES.get(kind, INTERNAL)
