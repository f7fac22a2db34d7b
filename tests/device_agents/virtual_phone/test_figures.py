from hypothesis import given
from hypothesis import strategies as st

from fleetrank.foundation.binary import encode_floats, encode_integers, encode_messages


@given(value=st.integers(0, 2**63 - 1))
def test_integers_are_read_by_the_protobuf_library(value: int) -> None:
    from google.protobuf.wrappers_pb2 import Int64Value

    assert Int64Value.FromString(encode_integers({1: value})).value == value


@given(value=st.floats(width=32, allow_nan=False))
def test_floats_are_read_by_the_protobuf_library(value: float) -> None:
    from google.protobuf.wrappers_pb2 import FloatValue

    assert FloatValue.FromString(encode_floats({1: value, 2: None})).value == value


@given(part=st.binary(max_size=300))
def test_messages_are_read_by_the_protobuf_library(part: bytes) -> None:
    from google.protobuf.wrappers_pb2 import BytesValue

    assert BytesValue.FromString(encode_messages({1: part})).value == part
