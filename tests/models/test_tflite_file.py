import contextlib
import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fleetrank.models.number_types import check_buffers, tflite_scales

CONTENT = (Path(__file__).parent / "data" / "uint8.tflite").read_bytes()


def test_whole_file_passes() -> None:
    check_buffers(CONTENT)


@given(st.integers(0, len(CONTENT) - 4), st.binary(min_size=1, max_size=8))
def test_changed_bytes_never_raise_anything_unexpected(at: int, change: bytes) -> None:
    damaged = CONTENT[:at] + change + CONTENT[at + len(change) :]
    with contextlib.suppress(struct.error, ValueError):
        check_buffers(damaged)
    with contextlib.suppress(struct.error, ValueError):
        list(tflite_scales(damaged))


@given(st.binary(max_size=200))
def test_random_bytes_never_raise_anything_unexpected(content: bytes) -> None:
    with contextlib.suppress(struct.error, ValueError):
        check_buffers(content)
