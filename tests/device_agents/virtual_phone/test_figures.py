from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.virtual_phone.imitation.inference import (
    describe_us,
    percentile,
    run_for,
)
from fleetrank.foundation.binary import encode_floats, encode_integers, encode_messages


class Steady:
    """Every run takes 10 ms."""

    load_ns = 1
    load_bytes = 0

    def run(self) -> int:
        return 10_000_000

    def peak_bytes(self) -> int:
        return 0


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


def test_both_minimums_hold_and_the_maximum_cuts() -> None:
    assert len(run_for(Steady(), min_runs=5, min_s=0.0, max_s=9.0)) == 5
    assert len(run_for(Steady(), min_runs=1, min_s=0.5, max_s=9.0)) == 50
    assert len(run_for(Steady(), min_runs=1000, min_s=0.0, max_s=0.1)) == 10


def test_a_percentile_is_an_element_and_the_last_one_at_most() -> None:
    assert [percentile([40, 10, 30, 20], p) for p in (0, 50, 99.9, 100)] == [10, 30, 40, 40]


def test_equal_times_are_worded_as_the_tool_words_them() -> None:
    assert describe_us([7, 7]) == "count=2 curr=7(all same) p5=7 median=7 p95=7"
    assert describe_us([]) == "count=0 p5=0 median=0 p95=0"
    assert describe_us([1_000_000, 3_000_000]) == (
        "count=2 first=1000000 curr=3000000 min=1000000 max=3000000 avg=2e+06 std=1000000 "
        "p5=1000000 median=3000000 p95=3000000"
    )
