"""Tables with settings: each word makes a table, and a wrong one is refused."""

import polars as pl
import pytest
from fleet_rows import NETS, write_results
from growth_rows import OF_SIDE_ROWS
from shared_tables import NAMES, SharedTables, words_with_rows

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.tables import TableRequest, make_table, part_of, session_table
from fleetrank.foundation.wording import with_flags

EVERY_WORD = [
    (name, one, word) for name in NAMES if name not in OF_SIDE_ROWS
    for one in part_of(name).settings.values() for word in words_with_rows(one)
]  # fmt: skip


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    folder = tmp_path_factory.mktemp("former") / "results"
    results = write_results(folder, nets=NETS[:9], repeats=3, n_samples=5)
    frame = load_measurements(results).collect().lazy()
    return frame.with_columns(energy_mj=pl.col("latency_p50_ns") / 1e6)


@pytest.fixture(scope="module")
def tables(frame: pl.LazyFrame) -> SharedTables:
    """No table of tokens has words to choose from."""
    return SharedTables(frame, frame, Selection(), workload="image")


@pytest.mark.thorough
@pytest.mark.slow
def test_every_word_of_every_setting_makes_a_table(
    tables: SharedTables, subtests: pytest.Subtests
) -> None:
    for name, one, word in EVERY_WORD:
        with subtests.test(name=name, setting=one.name, word=word):
            assert tables.table(TableRequest(name=name, settings=((one.name, word),))).title


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "settings", "remedy"),
    [
        ("predict", (("quantity", "memroy"),), "did you mean 'memory'?"),
        ("transfer/phases", (("by", "runtime"),), "takes no setting"),
        ("transfer", (("by", "runtime"),), "takes along"),
        ("choose/proxy", (("threshold", 0.5),), "add --part fewest"),
        ("transfer", (("weight_latency", 2),), "add --part full"),
        ("transfer/phases", (("along", "runtime"),), "add --part ranks or add --part full"),
        ("trust", (("what", "unit-slip"),), "add --part findings"),
        ("trust/findings", (("what", "unit-slips"),), "did you mean 'unit-slip'?"),
        ("components", (("split", "operator"), ("depth", 2)), "omit one"),
    ],
)
def test_a_setting_that_is_wrong_or_without_effect_is_refused(
    table: str, settings: tuple[tuple[str, str | float], ...], remedy: str, frame: pl.LazyFrame
) -> None:
    with pytest.raises(AnalysisError) as caught:
        make_table(table, frame, Selection(settings=settings))
    assert remedy in with_flags(caught.value.remedy)


@pytest.mark.slow
def test_several_kinds_of_findings_are_given_with_commas(frame: pl.LazyFrame) -> None:
    kinds = (("what", "tied latency, too-few-models"),)
    table = make_table("trust/findings", frame, Selection(settings=kinds))
    assert set(table.frame["what"]) <= {"tied latency", "too few models"}


@pytest.mark.slow
def test_tables_of_one_session_share_arrays_whatever_their_settings(frame: pl.LazyFrame) -> None:
    session = Session(frame, Selection())
    asked = session.asked(Selection(source="pixel-7"))
    session_table("flops/models", asked)
    assert asked.panel is session.panel


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
