"""The error for a job that a computing child cannot answer."""

from collections.abc import Mapping
from types import MappingProxyType

from fleetrank.analysis.errors import (
    AnalysisError,
    DamagedPartError,
    NoDataError,
    NotComparableError,
    QueryError,
)
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.errors import (
    NewerSchemaError,
    OrchestratorError,
    StoreError,
    UsageError,
)


class RefusedError(OrchestratorError):
    """A job was not answered; `kind` is the class name of the error in the child."""

    def __init__(self, kind: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.kind = kind


_MET: Mapping[str, type[FleetError]] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            AnalysisError,
            DamagedPartError,
            NewerSchemaError,
            NoDataError,
            NotComparableError,
            QueryError,
            StoreError,
            UsageError,
        )
    }
)


def error_of_child(refused: RefusedError) -> FleetError:
    """Returns the error of the child as its own class, so that the exit code is the same."""
    return _MET.get(refused.kind, OrchestratorError)(refused.message, refused.remedy)
