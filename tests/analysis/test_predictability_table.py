"""Predictability by family on hand-made latencies."""

import polars as pl
import pytest
from wording import has

from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

SOURCE = [1.0, 2, 4, 8, 16, 32]


def rows_of(frame: pl.LazyFrame, **selection: str) -> dict[str, dict[str, object]]:
    rows = make_table("predict/errors", frame, Selection(**selection)).frame.to_dicts()  # type: ignore[arg-type]
    return {str(row["family"]): row for row in rows}


@pytest.fixture
def two_devices(make_attempts) -> pl.LazyFrame:
    """d2 = 3 x d1, but for the one transformer, which is twice as slow as that."""
    families = ["mobile_cnn"] * 5 + ["transformer"]
    return make_attempts(
        {"model": f"m{i}", "family": family, "device": device,
         "latency_p50_ns": factor * SOURCE[i] * (2 if device == "d2" and i == 5 else 1)}
        for i, family in enumerate(families)
        for device, factor in (("d1", 1), ("d2", 3))
    )  # fmt: skip


def test_a_model_off_the_line_is_foretold_by_the_others(two_devices) -> None:
    found = rows_of(two_devices, source="d1")
    # 3 x 32 foretold, 192 measured.
    assert found["transformer"]["mean_error_percent"] == pytest.approx(50)
    assert (found["transformer"]["n_models"], found["transformer"]["n_fitted"]) == (1, 6)
    assert found["all"]["mean_error_percent"] == pytest.approx(
        (50 + found["mobile_cnn"]["mean_error_percent"]) / 2  # type: ignore[operator]
    )


def test_rho_of_a_family_needs_five_models(two_devices) -> None:
    found = rows_of(two_devices, source="d1")
    assert found["mobile_cnn"]["rho"] == pytest.approx(1)
    few = found["transformer"]
    assert (few["rho"], few["mean_abs_shift"]) == (None, 0)
    assert has(few["reason"], "1", "5", "models")


@pytest.mark.slow
def test_prediction_has_a_direction(two_devices) -> None:
    there, back = (rows_of(two_devices, source=one)["all"] for one in ("d1", "d2"))
    assert (there["source"], there["target"]) == (back["target"], back["source"])
    assert there["mean_error_percent"] != pytest.approx(back["mean_error_percent"])


def test_few_common_models_are_undefined_with_their_reason(make_grid) -> None:
    frame = make_grid({"d1": [1, 2, 3, 4], "d2": [1, 2, 3, 4]})
    found = rows_of(frame, source="d1")["all"]
    assert found["mean_error_percent"] is None
    assert has(found["reason"], "4", "models", "5")


def test_equal_latencies_on_the_source_fix_no_line(make_grid) -> None:
    frame = make_grid({"d1": [2.0] * 6, "d2": SOURCE})
    found = rows_of(frame, source="d1")["all"]
    assert found["mean_error_percent"] is None
    assert "equal on the source" in str(found["reason"])


def test_a_family_that_a_pair_lacks_is_named_as_such(make_attempts) -> None:
    frame = make_attempts(
        {"model": f"m{i}", "device": device, "latency_p50_ns": float(i + 1),
         "family": "hybrid" if i == 5 else "mobile_cnn"}
        for device, n in (("d1", 6), ("d2", 5))
        for i in range(n)
    )  # fmt: skip
    found = rows_of(frame, source="d1")
    assert found["hybrid"]["mean_error_percent"] is None
    assert found["hybrid"]["reason"] is not None
    assert found["all"]["mean_error_percent"] == pytest.approx(0, abs=1e-9)


def test_intervals_hold_the_mean_from_nine_models_on(make_grid) -> None:
    frame = make_grid(
        {"d1": range(1, 13), "d2": [2, 1, 3, 5, 4, 9, 7, 8, 6, 12, 10, 11]},
    )
    row = rows_of(frame, source="d1")["mobile_cnn"]
    assert row["low_percent"] < row["mean_error_percent"] < row["high_percent"]  # type: ignore[operator]
    assert row["reason"] is None
