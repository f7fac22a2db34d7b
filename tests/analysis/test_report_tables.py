"""Tables of the page: short names, missing values, what a row is about, and what is left out."""

from dataclasses import replace

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, write_results

from fleetrank.analysis.report.html_table import MAX_STATIC_ROWS, HtmlTable, html_table
from fleetrank.analysis.report.shown import MAX_CELLS, MAX_MODELS, Shown, choose_shown
from fleetrank.analysis.stored.cell_values import cell_values
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.tables.table import Table

KEY = "cpu-3fa2c1/onnx/cpu/eager/fp32/b1/t1/afree/{}"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("shown") / "r"
    results = write_results(folder, nets=NETS[:3], places=PLACES[:3], repeats=1, n_samples=2)
    return choose_shown(cell_values(load_measurements(results)))


def _without(shown: Shown, name: str) -> Shown:
    return replace(shown, left_out=dict.fromkeys(shown.left_out, frozenset({name})))


def _html(frame: pl.DataFrame, shown: Shown) -> HtmlTable:
    return html_table("scaling/memory", Table(title="t", frame=frame), shown)


def test_missing_is_a_dash_and_a_key_has_its_short_name(shown: Shown) -> None:
    frame = pl.DataFrame({"platform_key": [KEY, KEY], "x_ms": [1.5, None], "cell_key": "k"})
    table = _html(frame, shown)
    assert [head.text for head in table.heads] == ["platform", "x, ms"]
    name = table.rows[0].cells[0]
    assert (name.text, name.hint) == ("cpu-3fa2c1, onnx", KEY)
    assert table.rows[1].cells[1].text == "-"


def test_a_row_says_what_it_is_about(shown: Shown) -> None:
    row = {"model": "resnet18", "source": KEY, "target": "edge", "family": "all"}
    platform = str(list(shown.platforms).index(KEY))
    assert shown.subjects(row) == {"platform": platform, "model": "resnet18", "tier": "edge"}
    assert shown.subjects({"device": "pixel-7"}) == {"device": "pixel-7"}
    words = {"runtime": "onnx", "tier": "gpu", "precision": None}
    assert shown.subjects(words) == {"tier": "gpu", "runtime": "onnx"}


def test_a_pair_is_about_both_sides_and_equal_sides_count_once(shown: Shown) -> None:
    first, second = list(shown.platforms)[:2]
    assert shown.subjects({"source": first, "target": second}) == {"platform": "0 1"}
    assert shown.subjects({"source": "cpu", "target": "cpu"}) == {"tier": "cpu"}
    assert shown.subjects({"source": "cpu", "target": "edge"}) == {"tier": "cpu edge"}


def test_a_row_about_what_the_page_has_no_room_for_is_not_on_it(shown: Shown) -> None:
    small = _without(shown, "elsewhere")
    assert small.subjects({"model": "elsewhere"}) is None
    assert small.subjects({"device": "elsewhere"}) is None
    assert small.subjects({"platform_key": "elsewhere"}) is None
    assert small.subjects({"source": KEY, "target": "elsewhere"}) is None


def test_a_row_about_what_another_workload_measured_is_on_the_page(shown: Shown) -> None:
    row = {"model": "elsewhere", "device": "elsewhere", "platform_key": "elsewhere"}
    assert shown.subjects(row) == {"model": "elsewhere", "device": "elsewhere"}


def test_rows_of_charts_are_left_out_as_those_of_tables(shown: Shown) -> None:
    rows = pl.DataFrame({"model": ["resnet18", "elsewhere", None], "x": [1, 2, 3]})
    assert _without(shown, "elsewhere").on_page(rows)["x"].to_list() == [1, 3]
    assert shown.on_page(rows).height == 3


def test_a_word_that_is_no_name_of_the_page_is_about_nothing(shown: Shown) -> None:
    assert shown.subjects({"source": "every target", "reason": "resnet18"}) == {}


def test_rows_beyond_the_page_are_counted_and_left_out(shown: Shown) -> None:
    frame = pl.DataFrame({"model": ["resnet18", "elsewhere"], "x": [1, 2]})
    table = _html(frame, _without(shown, "elsewhere"))
    assert len(table.rows) == 1
    assert table.notes == (
        "1 of 2 rows are on this page; `fleetrank report show scaling --part memory` prints all.",
    )


def test_a_long_table_is_packed_with_each_text_once(shown: Shown) -> None:
    n = 3 * MAX_STATIC_ROWS
    frame = pl.DataFrame({"model": ["resnet18"] * n, "x": range(n)})
    table = _html(frame, shown)
    assert len(table.rows) == MAX_STATIC_ROWS
    assert table.packed is not None
    model, numbers = table.packed["columns"]  # type: ignore[misc]
    assert (model["words"], model["codes"]) == (["resnet18"], [0] * n)
    assert numbers["texts"] == [str(number) for number in range(n)]


def test_a_short_table_is_not_packed(shown: Shown) -> None:
    assert _html(pl.DataFrame({"x": [1]}), shown).packed is None


def _many(n_models: int, n_platforms: int) -> pl.DataFrame:
    rows = [
        {"model": f"m{model:04}", "platform_key": f"{'gpu' if platform % 2 else 'cpu'}-{platform}",
         "device": f"d{platform}", "tier": "gpu" if platform % 2 else "cpu", "runtime": "onnx",
         "latency_ns": 1.0 + model}
        for platform in range(n_platforms)
        for model in range(n_models if platform < 2 else n_models - 1)
    ]  # fmt: skip
    parts = ("backend", "mode", "precision", "batch", "threads", "affinity", "options", "axes")
    same = [pl.lit("same").alias(name) for name in parts]
    return pl.DataFrame(rows).with_columns(*same, origin=pl.lit("imported"))


def test_of_very_many_models_those_of_most_platforms_are_shown_and_it_is_said() -> None:
    chosen = choose_shown(_many(MAX_MODELS + 1, 3))
    assert set(chosen.models) == {f"m{model:04}" for model in range(MAX_MODELS)}
    assert len(chosen.platforms) == 3
    assert f"{MAX_MODELS} of {MAX_MODELS + 1} models" in chosen.notes[0]


def test_own_models_come_first_and_no_limit_drops_one() -> None:
    published = _many(MAX_MODELS + 9, 3)
    # The only published model of a device with an own model comes before those of more devices.
    is_near = pl.col("model") == "m0048"
    published = published.filter(is_near == (pl.col("device") == "d0"))
    mine = _many(MAX_MODELS + 5, 1).with_columns(
        pl.format("own{}", "model").alias("model"), origin=pl.lit("measured"),
        platform_key=pl.lit("mine"), device=pl.lit("mine"),
    )  # fmt: skip
    few = mine.filter(pl.col("latency_ns") < 3)
    known = few[:1].with_columns(
        platform_key=pl.lit("cpu-0"), device=pl.lit("d0"), origin=pl.lit("imported")
    )
    chosen = choose_shown(pl.concat([published, few, known]))
    assert len(chosen.models) == MAX_MODELS
    assert {*few["model"], "m0048"} <= set(chosen.models)
    every = choose_shown(pl.concat([published, mine]))
    assert set(every.models) == set(mine["model"])
    assert "mine" in every.platforms


def test_of_very_many_platforms_an_equal_share_of_tiers_is_shown_and_it_is_said() -> None:
    n = MAX_CELLS // 10 + 50
    chosen = choose_shown(_many(11, n).filter(pl.col("model") != "m0010"))
    assert len(chosen.platforms) == MAX_CELLS // 10
    tiers = [key[:3] for key in chosen.platforms]
    assert tiers.count("gpu") == tiers.count("cpu")
    assert f"of {n} platforms" in chosen.notes[0]


def test_a_few_are_all_shown_without_a_word(shown: Shown) -> None:
    assert len(shown.platforms) == 3
    assert shown.notes == ()
