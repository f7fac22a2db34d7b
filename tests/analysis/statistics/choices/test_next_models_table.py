"""Models to measure next, from rows."""

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
