"""Rows that were excluded by hand: how the file is read, and that nothing shown holds them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, write_results
from shared_tables import NAMES
from stored_part import part_of, write_part

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.evidence import gather
from fleetrank.analysis.stored.exclusions import (
    MAX_EXCLUSIONS,
    Exclusions,
    exclusion_notes,
    read_exclusions,
)
from fleetrank.analysis.stored.load import load_measurements, valid_attempts
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table, session_table

pytestmark = pytest.mark.slow

OLD, NEW = "s-20260101T000000-aa", "s-20260102T000000-bb"
ONE: Mapping[str, object] = {
    "number": 1, "sweep_id": NEW, "pattern": None, "reason": "the fan was off",
    "excluded_utc": "2026-11-21T12:00:00+00:00",
}  # fmt: skip


def write(results: Path, *entries: Mapping[str, object]) -> Path:
    numbered = [{**ONE, "number": n, **entry} for n, entry in enumerate(entries, start=1)]
    content = {"next_number": len(numbered) + 1, "exclusions": numbered}
    (results / "exclusions.json").write_text(json.dumps(content))
    return results


def marked(results: Path) -> dict[str, str | None]:
    frame = load_measurements(results).select("model", "excluded").unique().collect()
    return dict(frame.iter_rows())


@pytest.fixture
def results(tmp_path: Path, make_attempts) -> Path:
    """Models a, ab and b[1] on one platform, of the sweep `NEW`."""
    rows = make_attempts([{"model": name, "device": "x"} for name in ("a", "ab", "b[1]")])
    rows.collect().drop("sweep_id", "excluded").pipe(write_part, part_of(tmp_path, NEW))
    return tmp_path


def test_without_a_file_nothing_is_excluded(results: Path) -> None:
    assert read_exclusions(results) == Exclusions(next_number=1, entries=())
    assert set(marked(results).values()) == {None}


def test_a_whole_sweep_carries_its_reason(results: Path) -> None:
    assert set(marked(write(results, ONE)).values()) == {"the fan was off"}


@pytest.mark.parametrize(
    ("pattern", "models"),
    [
        ("a", {"a"}),
        ("a*", {"a", "ab"}),
        ("*a", {"a"}),
        ("b[1]", {"b[1]"}),  # no character class
        ("*[1]", {"b[1]"}),
        ("x/onnx/*", {"a", "ab", "b[1]"}),
        ("x/onnx", set()),
        ("x", set()),  # a device alone is no platform
        (".*", set()),
        ("*", {"a", "ab", "b[1]"}),
    ],
)
def test_a_pattern_is_a_model_or_a_platform_with_stars(results: Path, pattern, models) -> None:
    found = marked(write(results, {"pattern": pattern}))
    assert {model for model, reason in found.items() if reason} == models


def test_the_first_of_two_gives_the_reason_and_unknown_sweeps_do_no_harm(results: Path) -> None:
    write(results, {"sweep_id": "gone"}, {"pattern": "a"}, {"reason": "second"})
    assert marked(results) == {"a": "the fan was off", "ab": "second", "b[1]": "second"}


DAMAGED = [
    "", "{", "[]", "null", "1" * 5000, "[" * 100_000, '{"exclusions": []}',
    '{"exclusions": {}, "next_number": 1}', '{"exclusions": [1], "next_number": 2}',
    '{"exclusions": [], "next_number": 0}', '{"exclusions": [], "next_number": true}',
    '{"exclusions": [], "next_number": 1e400}',
]  # fmt: skip


@pytest.mark.parametrize("content", [*DAMAGED, "\udcff"], ids=range(len(DAMAGED) + 1))
def test_a_damaged_file_is_named_with_a_remedy(results: Path, content: str) -> None:
    (results / "exclusions.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(AnalysisError, match=r"exclusions\.json") as raised:
        load_measurements(results)
    assert "delete it" in raised.value.remedy
    assert len(raised.value.message) < 1000


@pytest.mark.parametrize(
    "change",
    [
        {"reason": ""}, {"reason": " x"}, {"reason": "two\nlines"}, {"reason": "x" * 201},
        {"reason": None}, {"reason": "\ud800"}, {"reason": "\x1b[2J"}, {"pattern": 3},
        {"pattern": "x" * 501}, {"sweep_id": None}, {"sweep_id": "\ud800"}, {"number": 0},
        {"number": "1"}, {"number": 2**63}, {"excluded_utc": "yesterday"}, {"excluded_utc": 3},
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_ours_is_refused(results: Path, change) -> None:
    with pytest.raises(AnalysisError, match=r"exclusions\.json"):
        read_exclusions(write(results, change))


def test_a_number_stands_for_one_exclusion(results: Path) -> None:
    with pytest.raises(AnalysisError, match="two exclusions"):
        read_exclusions(write(results, {"number": 1}, {"number": 1}))
    with pytest.raises(AnalysisError, match="two exclusions"):
        read_exclusions(write(results, {"number": 2}))  # would be given again


def test_more_than_can_be_asked_of_every_row_are_refused(results: Path) -> None:
    long = {"pattern": "*" * 250 + "(" * 250}
    assert set(marked(write(results, *[long] * MAX_EXCLUSIONS)).values()) == {None}
    with pytest.raises(AnalysisError, match="more than"):
        read_exclusions(write(results, *[long] * (MAX_EXCLUSIONS + 1)))


def test_what_is_no_file_is_not_waited_for(results: Path) -> None:
    os.mkfifo(results / "exclusions.json")
    with pytest.raises(AnalysisError, match="not a regular file"):
        read_exclusions(results)


def test_notes_count_rows_and_sweeps_for_each_reason(make_attempts) -> None:
    frame = make_attempts(
        [
            {"repeat": 0, "excluded": "x."},
            {"repeat": 1, "excluded": "x."},
            {"sweep_id": "s2", "excluded": "x."},
            {"repeat": 2, "excluded": "a reason"},
            {"repeat": 3},
        ]
    )
    assert exclusion_notes(frame) == (
        "Dropped: 1 row of 1 sweep excluded: a reason.",
        "Dropped: 3 rows of 2 sweeps excluded: x.",
    )


def test_an_older_sweep_counts_where_the_newest_is_excluded(make_attempts) -> None:
    old = {"sweep_id": "old", "started_utc": 0}
    new = {"sweep_id": "new", "started_utc": 1}
    two = [{**sweep, "model": model} for sweep in (old, new) for model in "ab"]
    two[2]["excluded"] = "not model b"
    kept = valid_attempts(make_attempts(two)).select("model", "sweep_id").collect()
    assert sorted(kept.iter_rows()) == [("a", "old"), ("b", "new")]


@pytest.fixture(scope="module")
def with_and_without(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Results whose second sweep is excluded, and the same without that sweep."""
    both, first = (tmp_path_factory.mktemp("fleet") / name for name in ("both", "first"))
    options = {"nets": NETS[:10], "places": PLACES[:4], "repeats": 5, "n_samples": 3}
    for results in (both, first):
        write_results(results, sweep=OLD, seed=1, **options)
    write_results(both, sweep=NEW, seed=9, **options)
    write(both, {"reason": "<b>wrong</b>"})
    return both, first


OF_ATTEMPTS = {"trust/dropped", "trust/host", "trust/waits"}
"""They list attempts, rounds and waits; what was excluded was one too."""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["latency", "flops/frm", "scaling/memory", "trust/findings"], id="few"),
        pytest.param(sorted(set(NAMES) - OF_ATTEMPTS), id="every", marks=pytest.mark.thorough),
    ],
)
def test_no_table_holds_what_was_excluded(
    with_and_without, names: list[str], subtests: pytest.Subtests
) -> None:
    """One session each serves all tables."""
    sessions = [Session(load_measurements(one), Selection()) for one in with_and_without]

    def make(session: Session, name: str) -> object:
        try:
            table = session_table(name, session.asked(Selection()))
        except AnalysisError as error:
            return error.message
        notes = [note for note in table.notes if " excluded: " not in note]
        return table.frame.to_dicts(), notes, len(table.notes) - len(notes)

    for name in names:
        with subtests.test(name):
            found, expected = (make(session, name) for session in sessions)
            if isinstance(expected, tuple):
                assert found == (*expected[:2], 1)
            else:
                assert found == expected


def test_the_table_of_dropped_attempts_lists_them_with_their_reason(with_and_without) -> None:
    table = make_table("trust/dropped", load_measurements(with_and_without[0]), Selection())
    excluded = table.frame.filter(pl.col("reason") == "excluded")
    assert set(excluded["sweep_id"]) == {NEW}
    assert set(excluded["detail"]) == {"<b>wrong</b>"}
    assert f"excluded {excluded.height}" in table.notes[0]
    every = load_measurements(with_and_without[0], sweep=NEW).collect().height
    assert excluded.height == every


def test_the_page_is_made_without_them_and_says_so(with_and_without) -> None:
    found, expected = (gather(results, Selection()) for results in with_and_without)
    assert found.cells.equals(expected.cells)
    for name in ("processes", "quantiles"):
        key = ("model", "platform_key")
        mine, theirs = (getattr(one, name).sort(key) for one in (found, expected))
        assert mine.equals(theirs), name
    assert [record.sweep_id for record in found.records] == [OLD]
    assert found.selected.collect().height == expected.selected.collect().height
    assert sum("excluded: <b>wrong</b>." in note for note in found.said) == 1


def test_nothing_left_says_what_was_excluded(with_and_without) -> None:
    frame = load_measurements(with_and_without[0], sweep=NEW)
    with pytest.raises(AnalysisError, match="excluded: <b>wrong") as raised:
        make_table("latency", frame, Selection(sweep=NEW))
    assert "results exclude" in raised.value.remedy
