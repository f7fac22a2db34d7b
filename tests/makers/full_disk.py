"""A full disk, made with the system's own limit on the size of a file."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_room_beyond(size_bytes: int) -> Iterator[None]:
    """Python ignores SIGXFSZ, so that a write beyond the limit fails like one to a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
