"""Tables with settings: each word makes a table, and a wrong one is refused."""

import polars as pl
import pytest
from fleet_rows import write_results
from growth_rows import OF_SIDE_ROWS
from shared_tables import SharedTables, words_with_rows

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table_settings import Setting, TableRequest
from fleetrank.analysis.tables.tables import TABLES, make_table, session_table
from fleetrank.foundation.errors import with_flags

EVERY_WORD = [
    (table, one.name, word) for table, spec in TABLES.items() if table not in OF_SIDE_ROWS
    for one in spec.settings for word in words_with_rows(one)
]  # fmt: skip


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
    frame = load_measurements(write_results(tmp_path_factory.mktemp("former") / "results"))
    return frame.with_columns(energy_mj=pl.col("latency_p50_ns") / 1e6)


@pytest.fixture(scope="module")
def tables(frame: pl.LazyFrame) -> SharedTables:
    """No table of tokens has words to choose from."""
    return SharedTables(frame, frame, Selection(), workload="image")


def setting_of(table: str, name: str) -> Setting:
    return next(one for one in TABLES[table].settings if one.name == name)


@pytest.mark.slow
def test_every_word_of_every_setting_makes_a_table(
    tables: SharedTables, subtests: pytest.Subtests
) -> None:
    for table, name, word in EVERY_WORD:
        with subtests.test(table=table, setting=name, word=word):
            needs = setting_of(table, name).needs
            settings = ((name, word), *(((needs[0].name, needs[1]),) if needs else ()))
            assert tables.table(TableRequest(table=table, settings=settings)).title


@pytest.mark.slow
def test_the_words_of_a_setting_give_different_tables(
    tables: SharedTables, subtests: pytest.Subtests
) -> None:
    for table, name in dict.fromkeys((one[:2]) for one in EVERY_WORD if one[1] != "what"):
        with subtests.test(table=table, setting=name):
            one = setting_of(table, name)
            words = words_with_rows(one)
            requests = [TableRequest(table=table, settings=((name, word),)) for word in words]
            made = [tables.table(request) for request in requests]
            assert len({(each.title, *each.frame.columns) for each in made}) == len(words)
            default = tables.table(TableRequest(table=table))
            if one.default:  # without one, the table shows the rows of all words
                assert default.frame.equals(made[words.index(one.default)].frame)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "settings", "remedy"),
    [
        ("cells", (("quantity", "memroy"),), "did you mean 'memory'?"),
        ("cells", (("by", "runtime"),), "it takes quantity"),
        ("ceiling", (("by", "runtime"),), "it takes none"),
        ("proxies", (("threshold", 0.5),), "add --own fewest"),
        ("transfer", (("weight_latency", 2),), "add --detail full"),
        ("quality", (("what", "unit-slip"),), "add --list findings"),
        ("quality", (("list", "findings"), ("what", "unit-slips")), "did you mean 'unit-slip'?"),
        ("effort", (("over", "devices"), ("k", 2)), "add --over models"),
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
    kinds = (("list", "findings"), ("what", "tied latency, too-few-models"))
    table = make_table("quality", frame, Selection(settings=kinds))
    assert set(table.frame["what"]) <= {"tied latency", "too few models"}


@pytest.mark.slow
def test_the_full_detail_is_possible_between_runtimes(frame: pl.LazyFrame) -> None:
    settings = (("along", "runtime"), ("detail", "full"))
    full = make_table("transfer", frame, Selection(settings=settings)).frame
    brief = make_table("transfer", frame, Selection(settings=settings[:1])).frame
    assert set(full["level"]) == set(brief["level"]) == {"runtimes", "pair"}
    measures = {name for name in brief["measure"] if not name.startswith("latency in ")}
    assert measures < set(full["measure"])
    frm = [one.filter(measure="frm")["rho"].to_list() for one in (full, brief)]
    assert frm[0] == frm[1]


@pytest.mark.slow
def test_tables_of_one_session_share_arrays_whatever_their_settings(frame: pl.LazyFrame) -> None:
    session = Session(frame, Selection())
    asked = session.asked(Selection(settings=(("by", "model"),), source="pixel-7"))
    session_table("disagreement", asked)
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
