"""The base of every error that a user reads."""


class FleetError(Exception):
    """An expected failure: `message` says what happened and where, `remedy` what to do about it.

    Both go to `Exception` by position, so that the error survives pickling between processes.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})"


class BadFileError(FleetError):
    """A file is not valid: missing, not a regular file, too large, or not readable as text.

    The command line ends with exit code 2.
    """


class MissingFileError(BadFileError):
    """No file of that name exists."""


_PANIC = "PanicException"
"""Source: PyO3, module `pyo3_runtime`: each such library has its own class of this name."""


def is_rust_panic(error: BaseException) -> bool:
    """Whether an error is a panic: it derives from `BaseException`, not from `Exception`."""
    return type(error).__name__ == _PANIC
