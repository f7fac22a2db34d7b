"""Errors of the analysis, one class for each reaction of the caller."""

from fleetrank.foundation.errors import FleetError


class AnalysisError(FleetError):
    """Base of all errors of `analysis`."""


class NoDataError(AnalysisError):
    """No stored row matches the request; exit code 4."""


class NotComparableError(AnalysisError):
    """The rows differ in facts that a comparison needs equal; the message lists them."""


class QueryError(AnalysisError):
    """The SQL is not one SELECT, is wrong, or ran over a limit; exit code 2."""


class DamagedPartError(AnalysisError):
    """A Parquet part cannot be read; exit code 1."""
