"""Detects 'out of memory' errors."""

_SIGNS = ("can't allocate memory", "bad_alloc", "cannot allocate memory", "out of memory")
"""Texts of PyTorch's allocator, C++ and the system for out of memory, in other exceptions."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, means that memory ran out."""
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).lower()
        if isinstance(cause, MemoryError) or any(sign in text for sign in _SIGNS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
