"""Two models on one platform: what is tested, what is refused and why."""

import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pairs import faster
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table


def table_of(frame: pl.LazyFrame, **settings: float | str) -> Table:
    return make_table("pairs/tests", frame, Selection(settings=tuple(settings.items())))


@pytest.fixture
def make_processes(make_attempts):
    """Process medians of each model on one device, repeat by repeat."""

    def make(series, **facts):
        return make_attempts(
            {"model": model, "repeat": repeat, "latency_p50_ns": float(value), **facts}
            for model, values in series.items()
            for repeat, value in enumerate(values)
        )

    return make


@pytest.mark.slow
def test_six_processes_by_hand(make_processes) -> None:
    frame = make_processes({"a": range(100, 106), "b": range(110, 116)})
    (row,) = table_of(frame).frame.to_dicts()
    assert (row["model_a"], row["model_b"], row["n_a"], row["n_paired"]) == ("a", "b", 6, 6)
    assert row["ratio"] == pytest.approx(112.5 / 102.5)
    assert (row["u"], row["cliffs_delta"]) == (36, 1)
    # One of C(12, 6) = 924 splits in each tail; one of 2^6 signs.
    assert row["mann_whitney_p"] == pytest.approx(2 / 924)
    assert 0 < row["p_value"] == row["p_adjusted"] < 0.05
    assert row["wilcoxon_p"] == pytest.approx(2 / 64)
    assert row["cohens_d"] == pytest.approx(10 / 3.5**0.5)
    assert row["hotelling_t2"] is None
    assert has(row["reason"], "T2", "accuracy", "measured")


@pytest.mark.slow
def test_below_five_processes_rank_tests_are_refused_with_the_reason(make_processes) -> None:
    (row,) = table_of(make_processes({"a": range(9, 13), "b": range(9, 14)})).frame.to_dicts()
    assert (row["mann_whitney_p"], row["cohens_d"]) == (None, None)
    assert row["p_value"] is not None
    assert has(row["reason"], "no rank test", "5")


@pytest.mark.slow
def test_ratio_and_interval_are_those_of_faster(make_processes) -> None:
    values = {
        "a": (100, 108, 93, 104, 96),
        "b": (103, 109, 99, 112, 101),
        "c": (90, 91, 92, 93, 94),
    }
    frame = make_processes(values)
    (row,) = table_of(frame, model_a="a", model_b="b").frame.to_dicts()
    here = faster(Session(frame, Selection()), "a", "b").here
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == pytest.approx(
        (here.ratio, here.low, here.high)
    )
    assert (here.model_a, row["n_a"], row["n_b"]) == ("a", 5, 5)


@pytest.mark.slow
def test_five_pairs_have_no_wilcoxon_since_it_cannot_find_anything(make_processes) -> None:
    (row,) = table_of(make_processes({"a": range(9, 14), "b": range(9, 14)})).frame.to_dicts()
    assert row["p_value"] == 1
    assert row["wilcoxon_p"] is None
    assert has(row["reason"], "5", "repeats", "6")


@pytest.mark.slow
def test_repeats_of_unlike_sweeps_are_not_paired(make_processes) -> None:
    first = make_processes({"a": range(100, 106)})
    frame = pl.concat([first, make_processes({"b": range(100, 106)}, sweep_id="s2")])
    (row,) = table_of(frame).frame.to_dicts()
    assert (row["n_paired"], row["wilcoxon_p"]) == (0, None)
    assert row["p_value"] == 1


@pytest.mark.slow
def test_far_medians_are_listed_only_when_named(make_processes) -> None:
    frame = make_processes({"a": range(100, 106), "b": range(200, 206), "c": range(203, 209)})
    assert table_of(frame).frame["model_a"].to_list() == ["b"]
    assert table_of(frame, within=2).frame.height == 3
    assert table_of(frame, within=0.0001).frame.is_empty()
    (row,) = table_of(frame, model_a="b", model_b="a").frame.to_dicts()
    assert (row["model_a"], row["model_b"], row["cliffs_delta"]) == ("b", "a", -1)
    assert table_of(frame, model_a="c").frame.height == 2
    assert table_of(frame, model_a="*", model_b="c*").frame.height == 2
    for of_a_shell in ("?", "[abc]"):
        assert table_of(frame, model_a=of_a_shell).frame.is_empty()


@pytest.mark.slow
def test_p_is_adjusted_over_the_listed_pairs(make_processes) -> None:
    frame = make_processes({"a": range(100, 106), "b": range(110, 116), "c": range(100, 106)})
    rows = table_of(frame).frame
    p = rows["p_value"][0]
    # Two separated pairs of three: Benjamini-Hochberg multiplies their p by 3 / 2.
    assert rows["p_adjusted"].to_list() == pytest.approx([1.5 * p, 1, 1.5 * p])


@pytest.mark.slow
def test_accuracy_that_was_measured_with_variance_is_tested_together(make_attempts) -> None:
    frame = make_attempts(
        {
            "model": model, "repeat": n, "latency_p50_ns": 100.0 + 7 * n * n % 11 + shift,
            "accuracy_top1": 70 + 5 * n % 7 / 10 + shift / 20,
        }
        for model, shift in (("a", 0), ("b", 10))
        for n in range(6)
    )  # fmt: skip
    (row,) = table_of(frame).frame.to_dicts()
    assert row["hotelling_t2"] > 0
    assert row["hotelling_p"] < 0.05
    assert row["reason"] is None


@pytest.mark.slow
def test_too_many_pairs_are_told_not_listed(make_processes) -> None:
    frame = make_processes({f"m{n:03}": [100.0 + n / 100] for n in range(102)})
    table = table_of(frame)
    assert table.frame.is_empty()
    assert any(has(note, "5000", "pairs", "models") for note in table.notes)


@pytest.mark.slow
def test_source_chooses_the_platforms(make_grid) -> None:
    frame = make_grid({"d1": [1.0, 1.1], "d2": [1.0, 1.1]})
    rows = make_table("pairs/tests", frame, Selection(source="d2")).frame
    assert rows["platform_key"].to_list() == ["d2/onnx/b1/t1"]


@pytest.mark.slow
def test_two_models_without_a_significant_difference_are_not_called_the_same(
    make_processes,
) -> None:
    noisy = (100, 108, 93, 104, 96)
    frame = make_processes({"a": noisy, "b": noisy[::-1]})
    (row,) = table_of(frame).frame.to_dicts()
    assert (row["p_value"], row["verdict"]) == (1, "undecided")
    assert row["more_repeats"] > 5
    (row,) = table_of(frame, margin=0.2).frame.to_dicts()
    assert row["verdict"] == "same within 20 %"
    assert 2 * max(row["p_not_slower"], row["p_not_faster"]) == row["p_same_adjusted"] < 0.05


@pytest.mark.slow
def test_the_slower_model_is_named_by_the_verdict(make_processes) -> None:
    frame = make_processes({"a": range(100, 106), "b": range(110, 116)})
    assert table_of(frame, model_a="a", model_b="b").frame["verdict"].to_list() == ["slower"]
    assert table_of(frame, model_a="b", model_b="a").frame["verdict"].to_list() == ["faster"]


@pytest.mark.slow
def test_models_of_two_sessions_say_that_the_sessions_differ_too(make_processes) -> None:
    first = make_processes({"a": range(100, 106)})
    both = pl.concat([first, make_processes({"b": range(100, 106)}, sweep_id="s2")])
    assert has(table_of(both).frame["reason"].item(), "different", "sessions")
    one = make_processes({"a": range(100, 106), "b": range(100, 106)})
    assert not has(table_of(one).frame["reason"].item(), "sessions")


@pytest.mark.slow
@pytest.mark.parametrize("margin", [0, -0.1, 10])
def test_a_margin_out_of_range_is_refused(make_processes, margin: float) -> None:
    frame = make_processes({"a": range(100, 106), "b": range(100, 106)})
    with pytest.raises(AnalysisError, match="margin"):
        table_of(frame, margin=margin)
