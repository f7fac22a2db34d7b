"""Two sweeps of the same cells: what is called slower, and what is refused."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl
import pytest
from stored_part import write_part
from wording import has

from fleetrank.analysis.arrays.two_samples import Verdict
from fleetrank.analysis.comparison.comparison import Comparison, compare_sweeps, comparison_json
from fleetrank.analysis.comparison.gates import Requirement, unmet_requirements
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.foundation.wording import with_flags

pytestmark = pytest.mark.slow

Rows = Iterable[Mapping[str, object]]
STEADY = (100, 101, 99, 100.5, 99.5)


@pytest.fixture
def store(tmp_path: Path, make_attempts):
    """Writes the rows of one sweep where the store would, perhaps after others of calm sessions."""

    def write(sweep: str, rows: Rows, *, calm: int = 0) -> Path:
        rows = list(rows)
        for number in range(calm):
            write(f"calm{number}", scaled(rows, 1 + 0.0005 * number))
        frame = make_attempts({**row, "sweep_id": sweep} for row in rows).collect()
        folder = tmp_path / "measurements" / f"sweep_id={sweep}"
        folder.mkdir(parents=True)
        frame.select(*SCHEMA).pipe(write_part, folder / "part-000000000000.parquet")
        return tmp_path

    return write


def processes(values: Iterable[float], **facts: object) -> list[dict[str, object]]:
    return [
        {"repeat": repeat, "latency_p50_ns": float(value) * 1e6, **facts}
        for repeat, value in enumerate(values)
    ]


def scaled(rows: Rows, factor: float) -> list[dict[str, object]]:
    return [{**row, "latency_p50_ns": factor * float(str(row["latency_p50_ns"]))} for row in rows]


def verdicts(found: Comparison) -> dict[str, str]:
    return dict(found.table.frame.select("model", "verdict").iter_rows())


def test_slower_faster_and_same_are_told_apart(store) -> None:
    store("a", [row for m in "xyz" for row in processes(STEADY, model=m)], calm=6)
    rows = [
        *processes((110, 111, 109, 110.5, 109.5), model="x"),
        *processes((90, 91, 89, 90.5, 89.5), model="y"),
        *processes((100.2, 101.2, 98.9, 100.4, 99.6), model="z"),
    ]
    found = compare_sweeps(store("b", rows), "a", "b")
    assert verdicts(found) == {"x": "slower", "y": "faster", "z": "same"}
    # The slower ones come first.
    first = found.table.frame.row(0, named=True)
    assert (first["model"], first["ratio"]) == ("x", pytest.approx(1.1))
    assert 0 < first["p_value"] < first["p_adjusted"] < 1e-6
    assert found.n_tested == 3


def test_a_small_difference_is_none_however_sure_it_is(store) -> None:
    store("a", processes(STEADY), calm=6)
    results = store("b", processes([value * 1.015 + 2 for value in (100, 100, 100, 100, 100)]))
    loose = compare_sweeps(results, "a", "b", threshold=0.05)
    assert verdicts(loose) == {"a": "same"}
    assert has(loose.table.frame["reason"].item(), "difference", "margin")
    assert verdicts(compare_sweeps(results, "a", "b", threshold=0.02)) == {"a": "slower"}


def test_two_repeats_a_side_show_a_large_change_or_that_a_cell_is_the_same(store) -> None:
    store("a", [row for model in "xy" for row in processes(STEADY[:2], model=model)], calm=6)
    rows = [*processes((200, 201), model="x"), *processes(STEADY[:2], model="y")]
    found = compare_sweeps(store("b", rows), "a", "b")
    assert verdicts(found) == {"x": "slower", "y": "same"}
    assert found.n_tested == 2


def test_single_processes_are_undecided_and_the_reason_says_why(store) -> None:
    store("a", processes(STEADY[:1]))
    found = compare_sweeps(store("b", processes(STEADY[1:2])), "a", "b")
    assert verdicts(found) == {"a": "undecided"}
    row = found.table.frame.row(0, named=True)
    assert has(row["reason"], "1 process", "spread", "2")
    assert (row["p_not_slower"], row["more_repeats"]) == (None, None)
    assert (found.n_tested, found.detectable_ratio) == (0, None)


NOISY = (100, 108, 93, 104, 96)


def test_a_noisy_cell_without_a_change_is_not_called_the_same(store) -> None:
    store("a", processes(NOISY), calm=6)
    results = store("b", processes(NOISY[::-1]))
    found = compare_sweeps(results, "a", "b", threshold=0.05)
    row = found.table.frame.row(0, named=True)
    assert (row["verdict"], row["p_value"]) == ("undecided", 1)
    assert row["ratio_low"] < 1 / 1.05
    assert row["more_repeats"] > 5
    assert has(row["reason"], str(row["more_repeats"]), "more")
    # The same noise with a margin of 20 % shows it.
    assert verdicts(compare_sweeps(results, "a", "b", threshold=0.2)) == {"a": "same"}


def test_a_slowdown_of_2_percent_is_the_same_within_5(store) -> None:
    store("a", processes(STEADY), calm=6)
    results = store("b", processes([1.02 * value for value in STEADY]))
    found = compare_sweeps(results, "a", "b", threshold=0.05)
    assert verdicts(found) == {"a": "same"}
    assert found.table.frame["p_not_slower"].item() < 0.01


def test_sameness_of_many_cells_is_adjusted_as_changes_are(store) -> None:
    quiet = [row for n in range(3) for row in processes(STEADY, model=f"q{n}")]
    noisy = [row for n in range(9) for row in processes(NOISY, model=f"n{n}")]
    store("a", [*quiet, *noisy], calm=6)
    found = compare_sweeps(store("b", [*quiet, *noisy]), "a", "b")
    rows = {row["model"]: row for row in found.table.frame.to_dicts()}
    p = 2 * max(rows["q0"][name] for name in ("p_not_slower", "p_not_faster"))
    assert rows["q0"]["p_same_adjusted"] == pytest.approx(p * 12 / 3)


def test_the_smallest_change_that_is_found_is_stated(store) -> None:
    models = ("quiet", "noisy")
    values = {"quiet": STEADY, "noisy": NOISY}
    rows = [row for model in models for row in processes(values[model], model=model)]
    store("a", rows, calm=6)
    results = store("b", rows)
    found = compare_sweeps(results, "a", "b")
    ratios = dict(found.table.frame.select("model", "detectable_ratio").iter_rows())
    assert 1.01 < ratios["quiet"] < 1.05
    assert ratios["noisy"] == found.detectable_ratio > 1.1
    assert has(found.table.notes, "80", f"{100 * (ratios['noisy'] - 1):.3g}")


def test_without_other_sweeps_a_prior_says_how_far_sessions_differ(store) -> None:
    store("a", [row for model in "xy" for row in processes(STEADY, model=model)])
    rows = [*processes(STEADY, model="x"), *scaled(processes(STEADY, model="y"), 1.3)]
    found = compare_sweeps(store("b", rows), "a", "b")
    assert verdicts(found) == {"x": "undecided", "y": "undecided"}
    row = found.table.frame.row(0, named=True)
    assert row["ratio_high"] / row["ratio"] == pytest.approx(1.57, abs=0.01)
    assert row["more_repeats"] is None
    assert has(row["reason"], "sessions", "fleetrank ab", "more sweeps")
    assert has(found.table.notes, "56.8 %", "from 0 other", "prior of 10 %", "fleetrank ab")


def test_a_change_is_found_among_calm_sessions_and_does_not_widen_its_own_interval(store) -> None:
    for number in range(10):
        store(f"c{number}", scaled(processes(STEADY), 1 + 0.01 * math.sin(3 * number)))
    store("a", processes(STEADY))
    results = store("b", scaled(processes(STEADY), 1.3))
    found = compare_sweeps(results, "a", "b")
    assert verdicts(found) == {"a": "slower"}
    assert has(found.table.notes, "session", "2.1 %", "from 10 other")
    assert not has(found.table.notes, "prior")
    back = compare_sweeps(results, "b", "a").table.frame.row(0, named=True)
    there = found.table.frame.row(0, named=True)
    assert back["ratio_low"] == pytest.approx(1 / there["ratio_high"])


def test_an_upgrade_in_the_history_is_no_spread_between_sessions(store) -> None:
    for number in range(10):
        version, factor = ("1.0", 1.0) if number < 5 else ("1.1", 1.4)
        rows = scaled(processes(STEADY, runtime_version=version), factor * 1.001**number)
        store(f"c{number}", rows)
    store("a", processes(STEADY, runtime_version="1.1"))
    found = compare_sweeps(store("b", processes(STEADY, runtime_version="1.1")), "a", "b")
    assert verdicts(found) == {"a": "same"}


def test_a_faster_cell_is_not_slower_and_not_the_same(store) -> None:
    store("a", processes(STEADY), calm=6)
    found = compare_sweeps(store("b", processes([0.9 * v for v in STEADY])), "a", "b")
    assert verdicts(found) == {"a": "faster"}
    assert unmet_requirements(found, [Requirement.NOT_SLOWER]) == ()
    assert len(unmet_requirements(found, [Requirement.SAME])) == 1


def test_one_slower_cell_among_many_is_found_with_five_repeats(store) -> None:
    """A rank test cannot: p is 0.008 at best, and 0.05 / 20 is less."""
    models = [f"m{number}" for number in range(20)]
    store("a", [row for model in models for row in processes(STEADY, model=model)], calm=6)
    slow = processes((110, 111, 109, 110.5, 109.5), model="m7")
    rest = [row for m in models if m != "m7" for row in processes(STEADY, model=m)]
    found = compare_sweeps(store("b", [*slow, *rest]), "a", "b")
    assert (found.counts[Verdict.SLOWER], found.counts[Verdict.SAME]) == (1, 19)
    assert found.table.frame["model"][0] == "m7"


def test_a_noisy_platform_does_not_hide_a_change_on_another(store) -> None:
    noisy = [row for m in "xyz" for row in processes(NOISY, model=m, device="loud")]
    store("a", [*noisy, *processes(STEADY, model="q")], calm=6)
    slow = processes([1.06 * value for value in STEADY], model="q")
    found = compare_sweeps(store("b", [*noisy, *slow]), "a", "b")
    assert verdicts(found)["q"] == "slower"


def test_facts_that_differ_are_listed_with_the_cells_they_concern(store) -> None:
    store("a", processes(STEADY, runtime_version="1.0", host="h1"))
    results = store("b", processes(STEADY, runtime_version="1.1", host="h1"))
    found = compare_sweeps(results, "a", "b")
    (difference,) = found.differences
    assert (difference.fact, difference.value_a, difference.value_b) == (
        "runtime_version", "1.0", "1.1",
    )  # fmt: skip
    assert has(found.table.notes, "1", "runtime_version", "1.0", "1.1")
    assert comparison_json(found)["differences"] == [difference.as_json()]


def test_figures_of_unlike_kinds_are_refused(store) -> None:
    store("a", processes(STEADY))
    found = compare_sweeps(store("b", processes(STEADY, sample_kind="vendor")), "a", "b")
    assert verdicts(found) == {"a": "refused"}
    assert "sample_kind: per_inference | vendor" in found.table.frame["reason"].item()


@pytest.mark.parametrize(
    ("of_a", "of_b", "verdict", "shown"),
    [
        ("mean", "minimum", "refused", "mean | minimum"),
        ("minimum", "minimum", "same", "minimum"),
        (None, "minimum", "same", "minimum"),
        (None, None, "same", None),
    ],
)
def test_unlike_statistics_are_refused_and_each_cell_names_its_own(
    store, of_a, of_b, verdict, shown
) -> None:
    facts = {"sample_kind": "vendor", "origin": "measured"}
    store("a", processes(STEADY, statistic=of_a, **facts), calm=6)
    found = compare_sweeps(store("b", processes(STEADY, statistic=of_b, **facts)), "a", "b")
    (row,) = comparison_json(found)["rows"]
    assert (row["verdict"], row["statistic"]) == (verdict, shown)
    if verdict == "refused":
        assert row["reason"] == f"statistic: {shown}"


def test_repeats_of_unlike_statistics_have_no_median(store) -> None:
    mixed = [
        {**row, "statistic": "mean" if n else "median"} for n, row in enumerate(processes(STEADY))
    ]
    store("a", mixed)
    (row,) = comparison_json(compare_sweeps(store("b", mixed), "a", "b"))["rows"]
    assert (row["verdict"], row["reason"]) == ("refused", "statistic: mean | median")
    assert [row[name] for name in ("median_a_ms", "median_b_ms", "ratio")] == [None] * 3


def test_cells_of_one_sweep_only_and_changed_models_are_named(store) -> None:
    store("a", [*processes(STEADY, model="gone"), *processes(STEADY, model="new", cell_key="k1")])
    rows = [*processes(STEADY, model="more"), *processes(STEADY, model="new", cell_key="k2")]
    found = compare_sweeps(store("b", rows), "a", "b")
    assert verdicts(found) == {"new": "refused", "gone": "one_sided", "more": "one_sided"}
    reasons = dict(found.table.frame.select("model", "reason").iter_rows())
    assert has(reasons["new"], "card", "weights", "exporter")


def test_only_the_last_good_attempt_of_a_repeat_counts(store) -> None:
    store("a", processes(STEADY))
    bad = {"repeat": 0, "attempt": 0, "status": "failed", "latency_p50_ns": None}
    retried = [{**row, "attempt": 1} for row in processes(STEADY)]
    found = compare_sweeps(store("b", [bad, *retried]), "a", "b")
    assert found.table.frame["n_b"].item() == 5


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [("a", "a", {}), ("a", "b", {"threshold": 0.0}), ("a", "b", {"alpha": 1.0})],
)
def test_what_cannot_be_compared_is_refused(store, a, b, options) -> None:
    store("a", processes(STEADY))
    with pytest.raises(AnalysisError):
        compare_sweeps(store("b", processes(STEADY)), a, b, **options)


def test_an_unknown_sweep_names_the_known(store) -> None:
    with pytest.raises(NoDataError) as raised:
        compare_sweeps(store("a", processes(STEADY)), "a", "b")
    assert "known are a" in raised.value.remedy


def test_a_sweep_without_any_success_is_no_data(store) -> None:
    store("a", processes(STEADY))
    failed = [{**row, "status": "failed"} for row in processes(STEADY)]
    with pytest.raises(NoDataError, match="no successful"):
        compare_sweeps(store("b", failed), "a", "b")


def test_the_rows_are_json(store) -> None:
    store("a", processes(STEADY), calm=6)
    content = comparison_json(compare_sweeps(store("b", processes(STEADY)), "a", "b"))
    assert content["cells"]["same"] == 1
    assert isinstance(pl.DataFrame(content["rows"])["ratio"].item(), float)


def exclude(results: Path, *patterns: str | None) -> None:
    entries = [
        {"number": n, "sweep_id": "b", "pattern": pattern, "reason": f"reason {n}",
         "excluded_utc": "2026-11-21T12:00:00+00:00"}
        for n, pattern in enumerate(patterns, start=1)
    ]  # fmt: skip
    content = {"next_number": 9, "exclusions": entries}
    (results / "exclusions.json").write_text(json.dumps(content))


@pytest.mark.parametrize("sides", [("a", "b"), ("b", "a")])
def test_an_excluded_sweep_is_refused_with_what_would_take_it_back(store, sides) -> None:
    store("a", processes(STEADY))
    exclude(results := store("b", processes(STEADY)), "nothing", None)
    with pytest.raises(AnalysisError, match=r"sweep b is excluded .*number 2: reason 2") as raised:
        compare_sweeps(results, *sides)
    assert not isinstance(raised.value, NoDataError)
    assert "`fleetrank results exclude --undo 2`" in with_flags(raised.value.remedy)
    assert "--undo 1`" not in with_flags(raised.value.remedy)


def test_parts_that_are_the_whole_are_refused_likewise(store) -> None:
    rows = [row for model in "xy" for row in processes(STEADY, model=model)]
    store("a", rows)
    exclude(results := store("b", rows), "x", "y")
    with pytest.raises(AnalysisError, match="number 1: reason 1; number 2: reason 2"):
        compare_sweeps(results, "a", "b")


def test_of_a_sweep_excluded_in_part_the_rest_is_compared(store) -> None:
    rows = [row for model in "xy" for row in processes(STEADY, model=model)]
    store("a", rows, calm=6)
    exclude(results := store("b", rows), "x")
    found = compare_sweeps(results, "a", "b")
    assert verdicts(found) == {"x": "one_sided", "y": "same"}
    assert has(found.table.notes, "5", "1", "excluded", "1")
