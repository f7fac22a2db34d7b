"""Recognises a panic of a library that is written in Rust."""

_NAME = "PanicException"
"""Source: PyO3, module `pyo3_runtime`: each such library has its own class of this name."""


def is_rust_panic(error: BaseException) -> bool:
    """Whether an error is a panic: it derives from `BaseException`, not from `Exception`."""
    return type(error).__name__ == _NAME
