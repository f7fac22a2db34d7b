"""The best reference device and the fewest devices that cover the fleet, from rows."""

import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table

UP = [1.0, 2, 3, 4, 5]
SWAPPED = [2.0, 1, 3, 4, 5]
DOWN = UP[::-1]


def rows_by_device(table: Table) -> dict[str, dict[str, object]]:
    return {row["device_model"].removeprefix("model of "): row for row in table.frame.to_dicts()}


@pytest.mark.slow
def test_proxies_by_hand(make_grid) -> None:
    frame = make_grid({"a": UP, "b": UP, "c": SWAPPED, "d": DOWN})
    table = make_table("choose/proxy", frame, Selection())
    found = rows_by_device(table)
    assert found["a"]["median_rho"] == pytest.approx(0.9)
    assert found["a"]["min_rho"] == pytest.approx(-1)
    assert found["a"]["worst_target"] == "model of d"
    assert found["d"]["median_rho"] == pytest.approx(-1)
    # Without a and without b, c has the best median, and without c and without d, a.
    assert has(table.notes, "4 times", "median rho 0.900", "the choice is model of a 2 times of 4")
    assert has(found["a"]["reason"], "interval", "5", "9")


@pytest.mark.slow
def test_intervals_from_nine_models_on(make_grid) -> None:
    up = [float(n) for n in range(1, 10)]
    frame = make_grid({"a": up, "b": up, "c": [up[1], up[0], *up[2:]]})
    row = rows_by_device(make_table("choose/proxy", frame, Selection()))["a"]
    assert row["low"] <= row["median_rho"] <= row["high"] <= 1
    assert row["reason"] is None


@pytest.mark.slow
def test_units_of_one_device_model_do_not_predict_each_other(make_grid) -> None:
    same = {"device_model": "phone"}
    frame = make_grid({"a1": UP, "a2": UP, "b": DOWN}, a1=same, a2=same)
    rows = rows_by_device(make_table("choose/proxy", frame, Selection()))
    assert set(rows) == {"phone", "b"}
    assert rows["phone"]["median_rho"] == pytest.approx(-1)
    with pytest.raises(NoDataError, match="only one device model"):
        make_table("choose/proxy", make_grid({"a1": UP, "a2": UP}, a1=same, a2=same), Selection())


@pytest.mark.slow
def test_platforms_of_unequal_batch_are_not_compared(make_grid) -> None:
    frame = make_grid({"a": UP, "b": UP}, b={"batch": 8})
    row = make_table("choose/proxy", frame, Selection()).frame.to_dicts()[0]
    assert (row["median_rho"], row["n_targets"]) == (None, 0)
    assert "equal batch" in row["reason"]


@pytest.mark.slow
def test_sources_and_targets_are_chosen_by_tier(make_grid) -> None:
    frame = make_grid({"g": UP, "e1": UP, "e2": DOWN}, e1={"tier": "edge"}, e2={"tier": "edge"})
    selection = Selection(source_tier="cpu", target_tier="edge")
    (row,) = make_table("choose/proxy", frame, selection).frame.to_dicts()
    assert (row["n_targets"], row["median_rho"]) == (2, pytest.approx(0, abs=1e-12))
    with pytest.raises(NoDataError, match="no two device models"):
        make_table("choose/proxy", frame, Selection(source="g", target="g"))


@pytest.mark.slow
def test_coverage_by_hand(make_grid) -> None:
    frame = make_grid({"a": UP, "b": SWAPPED, "c": DOWN})
    table = make_table("choose/fewest", frame, Selection())
    rows = rows_by_device(table)
    assert {name for name, row in rows.items() if row["is_owned"]} == {"a", "c"}
    assert (rows["b"]["predicted_by"], rows["b"]["n_models"]) == ("model of a", 5)
    assert rows["b"]["rho"] == pytest.approx(0.9)
    assert rows["a"]["rho"] is None
    assert any(has(note, "2", "3", "0.9") for note in table.notes)


@pytest.mark.slow
def test_threshold_is_a_setting(make_grid) -> None:
    frame = make_grid({"a": UP, "b": SWAPPED, "c": DOWN})
    strict = make_table("choose/fewest", frame, Selection(settings=(("threshold", "0.95"),)))
    assert strict.frame["is_owned"].to_list() == [True] * 3


@pytest.mark.slow
def test_what_no_device_predicts_is_named(make_grid) -> None:
    frame = make_grid({"g": UP, "e1": UP, "e2": DOWN}, e1={"tier": "edge"}, e2={"tier": "edge"})
    table = make_table("choose/fewest", frame, Selection(source_tier="cpu", target_tier="edge"))
    rows = rows_by_device(table)
    assert "below 0.9" in str(rows["e2"]["reason"])
    assert rows["e1"]["reason"] is None
    assert any("No choice of devices" in note for note in table.notes)


@pytest.mark.slow
def test_missing_models_are_ranked_inside_the_pair(make_grid) -> None:
    extra = make_grid({"a": [*UP, 6, 7]})
    frame = pl.concat([extra, make_grid({"b": UP, "c": DOWN})])
    rows = rows_by_device(make_table("choose/proxy", frame, Selection()))
    assert (rows["a"]["n_models"], rows["a"]["median_rho"]) == (5, pytest.approx(0, abs=1e-12))
