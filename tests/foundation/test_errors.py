"""Which errors of libraries mean that memory ran out."""

import errno
import os

import pytest

from fleetrank.foundation.errors import is_out_of_memory, says_out_of_memory


@pytest.mark.parametrize(
    "text",
    [
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "std::length_error: vector::_M_default_append",
        "Traceback (most recent call last):\nMemoryError",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 34359738368 bytes",
        os.strerror(errno.ENOMEM),
        "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 9",
        "CUDA error: out of memory",
        "libfoo.so: failed to map segment from shared object",
    ],
)
def test_every_library_s_words_are_known(text: str) -> None:
    assert says_out_of_memory(text)
    assert is_out_of_memory(RuntimeError(text.upper()))


@pytest.mark.parametrize(
    "text",
    ["", "memory", "failed to map segment from shared object: Operation not permitted"],
)
def test_other_words_are_not_about_memory(text: str) -> None:
    assert not says_out_of_memory(text)


def test_a_cause_counts_named_or_not() -> None:
    def lookup() -> None:
        try:
            [][10**30]
        except IndexError as error:
            error.__context__ = MemoryError()
            raise ValueError("file") from error

    with pytest.raises(ValueError, match="file") as caught:
        lookup()
    assert is_out_of_memory(caught.value)
