"""Telling 'out of memory' from other errors."""

_SIGNS = ("can't allocate memory", "bad_alloc", "cannot allocate memory", "out of memory")
"""How PyTorch's allocator, C++ and the system say it in the text of other exceptions."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that caused it, says that memory ran out."""
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).lower()
        if isinstance(cause, MemoryError) or any(sign in text for sign in _SIGNS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
