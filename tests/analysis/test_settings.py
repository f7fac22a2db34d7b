"""What a single table can be told beyond the selectors all tables share."""

import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.tables import make_table


def test_a_setting_has_the_kind_of_its_default_and_the_last_one_counts() -> None:
    selection = Selection(settings=(("k", "5"), ("model_a", "42"), ("k", 3)))
    assert setting(selection, "k", 1.0) == 3
    assert setting(selection, "model_a", "*") == "42"
    assert setting(selection, "absent", 0.9) == 0.9


@pytest.mark.parametrize("value", ["many", "", "nan", "inf"])
def test_what_is_no_number_is_refused_with_an_example(value: str) -> None:
    with pytest.raises(AnalysisError) as caught:
        setting(Selection(settings=(("k", value),)), "k", 2.0)
    assert caught.value.remedy == "such as `set k=2`"


def test_a_setting_that_the_table_does_not_take_is_refused(make_grid) -> None:
    with pytest.raises(AnalysisError) as caught:
        make_table("stability", make_grid({"d": [1.0]}), Selection(settings=(("k", 2),)))
    assert caught.value.remedy == "it takes none"
