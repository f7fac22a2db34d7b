"""What `why_misfit` accepts, Parquet holds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.orchestrator.store.parts import to_frame
from fleetrank.orchestrator.table_fit import why_misfit

STAMP = "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"seed": 2**63 - 1, "samples_ns": [-(2**63), 2**63 - 1]},
        {"latency_p50_ns": 1, "is_charging_before": True, "flags": ["spread"]},
        {"started_utc": STAMP, "finished_utc": "2026-01-01T00:00:00"},
        {"a_later_column": object()},
        {"samples_ns": [], "flags": []},
    ],
)
def test_a_row_fits(values: dict[str, object]) -> None:
    assert why_misfit(values) is None
    assert to_frame([values]).height == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"seed": 2**63}, "seed cannot be an integer of 64 bits"),
        ({"seed": -(2**63) - 1}, "seed cannot be an integer of 64 bits"),
        ({"seed": 10**400}, "seed cannot be an integer of 1329 bits"),
        ({"seed": 1.5}, "seed cannot be 1.5"),
        ({"seed": True}, "seed cannot be True"),
        ({"samples_ns": [1, 2**63]}, "samples_ns cannot be"),
        ({"samples_ns": 3}, "samples_ns cannot be 3"),
        ({"latency_p50_ns": "fast"}, "latency_p50_ns cannot be 'fast'"),
        ({"model": 3}, "model cannot be 3"),
        ({"flags": [3]}, r"flags cannot be \[3\]"),
        ({"is_charging_before": 1}, "is_charging_before cannot be 1"),
        ({"started_utc": "yesterday"}, "started_utc cannot be 'yesterday'"),
        ({"started_utc": "0001-01-01T00:00:00+23:00"}, "started_utc"),
    ],
)
def test_what_its_column_cannot_hold_is_named(values: dict[str, object], said: str) -> None:
    assert re.match(said, why_misfit(values) or "")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=3),
    st.lists(st.integers(-(2**65), 2**65), max_size=2), st.lists(st.text(max_size=2), max_size=2),
    st.datetimes().map(lambda time: time.isoformat()), st.just(STAMP),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*SCHEMA]), VALUES, max_size=4))
def test_no_row_that_fits_is_refused_by_parquet(values: dict[str, object]) -> None:
    if why_misfit(values) is None:
        assert to_frame([values]).height == 1
