"""What a computing child refuses, and the error that it met."""

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
    """A child's refusal; `kind` is the name of the class of the error it met."""

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
    """The error as it was in the child, so that it has the same exit code as here."""
    return _MET.get(refused.kind, OrchestratorError)(refused.message, refused.remedy)
