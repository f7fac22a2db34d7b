"""The base of every error that a user reads, and signs by which libraries' errors are known."""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from fleetrank.foundation.visible_text import shortened


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


@lru_cache(maxsize=1000)
def warn_once(text: str) -> None:
    """Logs a warning of a problem that is met again and again, once in a process."""
    logging.getLogger(__name__).warning("%s", text)


@contextmanager
def reworded(kind: type[FleetError], *causes: type[FleetError]) -> Iterator[None]:
    """Raises these errors of the block as an error of this kind, with their words.

    Raises:
        FleetError: of the class `kind`.
    """
    try:
        yield
    except causes as error:
        raise kind(error.message, error.remedy) from error


def raise_together(errors: Iterable[FleetError]) -> None:
    """Raises several errors as one of the first one's class; nothing if there is none."""
    found = list(errors)
    if len(found) == 1:
        raise found[0]
    if found:
        raise type(found[0])(
            "; ".join(dict.fromkeys(error.message for error in found)),
            "; ".join(dict.fromkeys(error.remedy for error in found)),
        )


_PANIC = "PanicException"
"""Source: PyO3, module `pyo3_runtime`: each such library has its own class of this name."""


def is_rust_panic(error: BaseException) -> bool:
    """Whether an error is a panic: it derives from `BaseException`, not from `Exception`."""
    return type(error).__name__ == _PANIC


@contextmanager
def failing_as(
    kind: type[FleetError], message: str, remedy: str, *causes: type[Exception]
) -> Iterator[None]:
    """Raises errors of the system or of a library that reads a file as `kind`.

    Without `causes` any error: damage of a file can cause every one.

    Raises:
        FleetError: of the class `kind`; its message ends with the words of the library.
    """
    try:
        yield
    except BaseException as error:
        is_any = isinstance(error, Exception) or is_rust_panic(error)
        if not (
            isinstance(error, causes) if causes else is_any and not isinstance(error, FleetError)
        ):
            raise
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = shortened(said, 300)
        raise kind(f"{message}: {reason}", remedy) from error


_MEMORY_SIGNS = re.compile(
    "|".join(
        (
            "bad_alloc",  # the C++ standard library: std::bad_alloc
            "std::length_error",  # the same: a container of impossible size, in a damaged file
            "MemoryError",  # Python, in the traceback of a process that has ended
            "can't allocate memory",  # PyTorch: DefaultCPUAllocator
            "cannot allocate memory",  # the system: strerror(ENOMEM)
            "failed to allocate memory",  # ONNX Runtime: its arena
            "out of memory",  # CUDA: cudaErrorMemoryAllocation, and PyTorch's allocator above it
            # The dynamic loader of glibc; also for a library that may not be executed.
            r"failed to map segment from shared object(?!: Operation not permitted)",
        )
    ),
    re.IGNORECASE,
)
"""How libraries report a failed allocation, in exceptions of their own and in their output."""


def says_out_of_memory(text: str) -> bool:
    """Whether a program's output means that an allocation failed."""
    return _MEMORY_SIGNS.search(text) is not None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that an allocation failed."""
    cause: BaseException | None = error
    seen: list[BaseException] = []  # `raise error from error` makes a circle
    while cause is not None and cause not in seen:
        seen.append(cause)
        if isinstance(cause, MemoryError) or says_out_of_memory(str(cause)):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
