"""Published composites by hand and as a table."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fleetrank.analysis.statistics.ranks.composite_scores import (
    energy_delay_mj_ms,
    netscore,
    roofline,
)
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

positive = arrays(np.float64, (6, 3), elements=st.floats(1, 1e6))


def test_netscore_by_hand() -> None:
    (score,) = netscore(np.array([70.6]), np.array([4.2e6]), np.array([569e6]))
    assert score == pytest.approx(20 * math.log10(70.6**2 / math.sqrt(4.2 * 0.569)))
    assert score == pytest.approx(70.17, abs=0.01)


def test_energy_delay_in_its_units() -> None:
    assert energy_delay_mj_ms(np.array([3.0]), np.array([2e6])) == pytest.approx([6])


def test_roofline_by_hand() -> None:
    # FLOP/s: 100, 40; byte/s: 10, 20; the ridge is at 5 FLOPs a byte, the models at 10 and 2.
    found = roofline(np.array([100.0, 40]), np.array([10.0, 20]), np.array([1e9, 1e9]))
    assert (found.peak_flops_per_s, found.peak_bytes_per_s) == (100, 20)
    assert found.is_compute_bound.tolist() == [True, False]
    assert found.share == pytest.approx([1, 1])


@given(positive)
def test_nobody_is_above_the_roofline_and_somebody_touches_it(values: np.ndarray) -> None:
    found = roofline(*values.T)
    allowed = np.minimum(
        found.peak_flops_per_s, found.intensity_flops_per_byte * found.peak_bytes_per_s
    )
    assert (values[:, 0] / values[:, 2] * 1e9 <= allowed * (1 + 1e-9)).all()
    assert found.share.max() == pytest.approx(1)


@pytest.mark.parametrize("function", [netscore, roofline])
def test_zero_and_nan_are_refused(function) -> None:
    for wrong in (0.0, math.nan):
        with pytest.raises(ValueError, match="remove "):
            function(np.array([1.0]), np.array([wrong]), np.array([1.0]))


def test_the_table_by_hand(make_attempts) -> None:
    frame = make_attempts(
        {
            "model": f"m{n}", "latency_p50_ns": 1e6, "flops": 2_000_000 * n, "parameters": 10**6,
            "accuracy_top1": 70.0, "energy_mj": 4.0, "precision": "int8", "batch": 2,
        }
        for n in range(1, 6)
    )  # fmt: skip
    rows = make_table("flops/composites", frame, Selection()).frame.to_dicts()
    last = rows[-1]
    assert last["netscore"] == pytest.approx(20 * math.log10(4900 / math.sqrt(1 * 0.005)))
    assert last["edp_mj_ms"] == pytest.approx(4)
    # Two samples of 10 MFLOPs in a millisecond; a megabyte of int8 weights read once.
    assert last["peak_gflops_per_s"] == pytest.approx(20)
    assert last["peak_gbytes_per_s"] == pytest.approx(1)
    assert last["flops_per_byte"] == pytest.approx(20)
    assert [row["bound"] for row in rows] == ["memory"] * 4 + ["compute"]
    assert last["reason"] is None


def test_what_is_not_known_is_null_with_the_reason(make_grid) -> None:
    (row,) = make_table("flops/composites", make_grid({"d": [1.0]}), Selection()).frame.to_dicts()
    assert [row[name] for name in ("netscore", "edp_mj_ms", "bound")] == [None] * 3
    assert "no NetScore" in row["reason"]
    assert "no energy reading" in row["reason"]
    assert "no roofline" in row["reason"]


def test_source_chooses_platforms(make_grid) -> None:
    frame = make_grid({"a": [1.0], "b": [1.0]})
    shown = make_table("flops/composites", frame, Selection(source="b")).frame
    assert shown["platform_key"].to_list() == ["b/onnx/b1/t1"]
