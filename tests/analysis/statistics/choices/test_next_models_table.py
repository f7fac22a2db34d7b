"""Models to measure next, from rows."""

import math

import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table


@pytest.fixture
def fleet(make_grid):
    """Nine models on five devices that agree but for speed and for the model m4."""
    devices = {
        f"d{n}": [(n + 1.0) * (i + 1) * (1.5 ** (n - 2) if i == 4 else 1) for i in range(9)]
        for n in range(5)
    }
    return make_grid(devices, flops=range(1, 10), accuracy=range(60, 69))


@pytest.mark.thorough
def test_the_odd_model_is_measured_and_the_rest_follows(fleet) -> None:
    rows = make_table("choose/models", fleet, Selection(settings=(("k", 2),))).frame.to_dicts()
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert "m4" in [row["model"] for row in rows]
    assert rows[2]["error_left"] < 0.02 < rows[2]["error_left_random"]
    assert rows[2]["rho"] > 0.99 > rows[2]["rho_random"]
    assert rows[0]["error_left"] is None
    assert has(rows[0]["reason"], "ranks", "unknown")
    assert (rows[0]["n_devices"], rows[0]["n_models"]) == (5, 9)


@pytest.mark.slow
@pytest.mark.parametrize("k", ["0", "9", "2.5", "-1"])
def test_k_is_a_number_of_models(fleet, k: str) -> None:
    with pytest.raises(AnalysisError) as caught:
        make_table("choose/models", fleet, Selection(settings=(("k", k),)))
    assert has(caught.value.remedy, "number", "1", "8")


@pytest.mark.slow
def test_sparse_platforms_and_models_are_left_out_and_counted(make_grid) -> None:
    full = make_grid({name: [1.0, 2, 3, 4, 5, 6 + n] for n, name in enumerate("abc")})
    sparse = make_grid({"d": [1.0, 2]})
    table = make_table("choose/models", pl.concat([full, sparse]), Selection())
    assert any(has(note, "6", "3", "1", "platform") for note in table.notes)


@pytest.mark.slow
def test_two_device_models_cannot_judge(make_grid) -> None:
    frame = make_grid({"a": [1.0, 2, 3, 4, 5], "b": [1.0, 2, 3, 4, 5]})
    with pytest.raises(NoDataError, match=r"5.*models.*3"):
        make_table("choose/models", frame, Selection())


@pytest.mark.thorough
@pytest.mark.slow
def test_a_large_fleet_takes_seconds(make_grid) -> None:
    frame = make_grid(
        {f"d{n:02}": [2 + math.sin(i * n + i) for i in range(12)] for n in range(60)},
        accuracy=range(12),
    )
    table = make_table("choose/models", frame, Selection(settings=(("k", 1),)))
    assert table.frame["n_devices"].to_list() == [50, 50]
