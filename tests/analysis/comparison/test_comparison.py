"""Two sweeps of the same cells: what is called slower, and what is refused."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl
import pytest
from wording import has

from fleetrank.analysis.comparison.cell_verdicts import Verdict
from fleetrank.analysis.comparison.comparison import Comparison, compare_sweeps, comparison_json
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.columns import SCHEMA

pytestmark = pytest.mark.slow

Rows = Iterable[Mapping[str, object]]
STEADY = (100, 101, 99, 100.5, 99.5)


@pytest.fixture
def store(tmp_path: Path, make_attempts):
    """Writes the rows of one sweep where the store would."""

    def write(sweep: str, rows: Rows) -> Path:
        frame = make_attempts({**row, "sweep_id": sweep} for row in rows).collect()
        folder = tmp_path / "measurements" / f"sweep_id={sweep}"
        folder.mkdir(parents=True)
        frame.select(*SCHEMA).write_parquet(folder / "part-00000000.parquet")
        return tmp_path

    return write


def processes(values: Iterable[float], **facts: object) -> list[dict[str, object]]:
    return [
        {"repeat": repeat, "latency_p50_ns": float(value) * 1e6, **facts}
        for repeat, value in enumerate(values)
    ]


def verdicts(found: Comparison) -> dict[str, str]:
    return dict(found.table.frame.select("model", "verdict").iter_rows())


def test_slower_faster_and_same_are_told_apart(store) -> None:
    store("a", [row for m in "xyz" for row in processes(STEADY, model=m)])
    rows = [
        *processes((110, 111, 109, 110.5, 109.5), model="x"),
        *processes((90, 91, 89, 90.5, 89.5), model="y"),
        *processes((100.2, 101.2, 98.9, 100.4, 99.6), model="z"),
    ]
    found = compare_sweeps(store("b", rows), "a", "b")
    assert verdicts(found) == {"x": "slower", "y": "faster", "z": "same"}
    # The slower ones come first; 2 of C(10, 5) = 252 splits separate both sides.
    first = found.table.frame.row(0, named=True)
    assert (first["model"], first["ratio"]) == ("x", pytest.approx(1.1))
    assert first["p_value"] == pytest.approx(2 / 252)
    assert first["p_adjusted"] == pytest.approx(3 / 252)
    assert found.n_tested == 3


def test_a_small_difference_is_none_however_sure_it_is(store) -> None:
    store("a", processes(STEADY))
    results = store("b", processes([value * 1.015 + 2 for value in (100, 100, 100, 100, 100)]))
    loose = compare_sweeps(results, "a", "b", threshold=0.05)
    assert verdicts(loose) == {"a": "same"}
    assert has(loose.table.frame["reason"].item(), "difference", "threshold")
    assert verdicts(compare_sweeps(results, "a", "b", threshold=0.02)) == {"a": "slower"}


def test_below_five_repeats_a_side_nothing_is_tested(store) -> None:
    store("a", processes(STEADY))
    found = compare_sweeps(store("b", processes((200, 201, 199, 200))), "a", "b")
    assert verdicts(found) == {"a": "refused"}
    assert has(found.table.frame["reason"].item(), "4", "processes", "5")
    assert found.n_tested == 0


def test_one_slower_cell_among_many_is_undecided_and_the_notes_say_why(store) -> None:
    models = [f"m{number}" for number in range(20)]
    store("a", [row for model in models for row in processes(STEADY, model=model)])
    slow = processes((150, 151, 149, 150.5, 149.5), model="m7")
    rest = [row for m in models if m != "m7" for row in processes(STEADY, model=m)]
    found = compare_sweeps(store("b", [*slow, *rest]), "a", "b")
    assert found.counts[Verdict.UNDECIDED] == 1
    assert found.counts[Verdict.SLOWER] == 0
    assert found.table.frame["model"][0] == "m7"
    # 0.0079 * 20 / 4 = 0.04 is the first that is below 0.05.
    assert any(has(note, "4", "changed", "20") for note in found.table.notes)


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
    store("a", processes(STEADY))
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
    assert "`fleetrank results exclude --undo 2`" in raised.value.remedy
    assert "--undo 1`" not in raised.value.remedy


def test_parts_that_are_the_whole_are_refused_likewise(store) -> None:
    rows = [row for model in "xy" for row in processes(STEADY, model=model)]
    store("a", rows)
    exclude(results := store("b", rows), "x", "y")
    with pytest.raises(AnalysisError, match="number 1: reason 1; number 2: reason 2"):
        compare_sweeps(results, "a", "b")


def test_of_a_sweep_excluded_in_part_the_rest_is_compared(store) -> None:
    rows = [row for model in "xy" for row in processes(STEADY, model=model)]
    store("a", rows)
    exclude(results := store("b", rows), "x")
    found = compare_sweeps(results, "a", "b")
    assert verdicts(found) == {"x": "one_sided", "y": "same"}
    assert has(found.table.notes, "5", "1", "excluded", "1")
