"""Errors of the analysis, sorted by what the caller does about them."""


class AnalysisError(Exception):
    """Anything `analysis` reports; `message` says what happened, `remedy` what to do.

    Both go to `Exception` by position, so that the error survives pickling between processes.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})"


class NoDataError(AnalysisError):
    """There is no row to answer with; exit code 4."""


class NotComparableError(AnalysisError):
    """The rows differ in something that a comparison needs equal; the message lists it."""


class QueryError(AnalysisError):
    """The SQL is not one SELECT, is wrong, or ran over a limit; exit code 2."""


class DamagedPartError(AnalysisError):
    """A Parquet part cannot be read; exit code 1."""
