"""What `source` and `target` do to a table: choose, or are refused; they are never passed over."""

import polars as pl
import pytest
from daily import daily
from fleet_rows import write_results
from shared_tables import NAMES

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import check_request, make_table, part_of

pytestmark = pytest.mark.slow
OF_MEASUREMENTS = [name for name in NAMES if not part_of(name).is_apart]


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    folder = tmp_path_factory.mktemp("selectors") / "results"
    return load_measurements(write_results(folder, repeats=2, n_samples=2)).collect().lazy()


@pytest.mark.parametrize("name", daily(["target", "target_tier"], "target"))
def test_a_target_is_refused_where_there_is_none(
    name: str, frame: pl.LazyFrame, subtests: pytest.Subtests
) -> None:
    selection = Selection(**{name: {"target": "pixel-7", "target_tier": "edge"}[name]})
    for table in (table for table in NAMES if not part_of(table).is_of_pairs):
        with subtests.test(table), pytest.raises(AnalysisError, match="has no target"):
            check_request(table, frame, selection)


@pytest.mark.parametrize(
    "selection",
    daily(
        [Selection(source="nosuch"), Selection(target="pixel-8*"), Selection(source_tier="fpga")],
        Selection(target="pixel-8*"),
    ),
)
def test_a_selector_that_fits_nothing_is_an_error_in_every_table(
    selection: Selection, frame: pl.LazyFrame, subtests: pytest.Subtests
) -> None:
    fits_nothing = "no platform fits the (source|target)"
    for name in OF_MEASUREMENTS:
        with subtests.test(name), pytest.raises(NoDataError, match=fits_nothing):
            check_request(name, frame, selection)


def test_a_model_that_no_row_has_is_an_error_in_every_table(
    frame: pl.LazyFrame, subtests: pytest.Subtests
) -> None:
    selection = Selection(model=("resnet50", "mobilenet_v*", "resnt18", "vgg*"))
    for name in OF_MEASUREMENTS:
        with subtests.test(name), pytest.raises(NoDataError) as caught:
            check_request(name, frame, selection)
        assert "'resnt18', nor 1 other" in caught.value.message
        assert "did you mean 'resnet18'" in caught.value.remedy


def test_the_nearest_device_is_named(frame: pl.LazyFrame) -> None:
    with pytest.raises(NoDataError) as caught:
        make_table("latency", frame, Selection(source="pixl-7*"))
    assert "did you mean 'pixel-7'" in caught.value.remedy
