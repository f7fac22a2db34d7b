"""Errors of the analysis, sorted by what the caller does about them."""

from fleetrank.foundation.errors import FleetError


class AnalysisError(FleetError):
    """Anything `analysis` reports."""


class NoDataError(AnalysisError):
    """There is no row to answer with; exit code 4."""


class NotComparableError(AnalysisError):
    """The rows differ in something that a comparison needs equal; the message lists it."""


class QueryError(AnalysisError):
    """The SQL is not one SELECT, is wrong, or ran over a limit; exit code 2."""


class DamagedPartError(AnalysisError):
    """A Parquet part cannot be read; exit code 1."""
