"""A panic of a library that is written in Rust, as Python sees it."""

_NAME = "PanicException"
"""Source: PyO3, module `pyo3_runtime`: each such library has its own class of this name."""


def is_rust_panic(error: BaseException) -> bool:
    """Whether an error is a panic: it derives from `BaseException`, and no `except` expects it."""
    return type(error).__name__ == _NAME
