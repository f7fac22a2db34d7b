"""Writing what is left out by hand."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.exclusions import MAX_EXCLUSIONS, read_exclusions
from fleetrank.foundation.lease import open_lease, wait_for_lock
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.store import small_files
from fleetrank.orchestrator.store.small_files import exclude, take_back


def numbers(results: Path) -> list[int]:
    return [one.number for one in read_exclusions(results).entries]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = exclude(tmp_path, "s1", "resnet*", "  the fan was off \n")
    assert made.reason == "the fan was off"
    assert made.excluded_utc.endswith("+00:00")
    assert read_exclusions(tmp_path).entries == (made,)


def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    exclude(tmp_path, "s1", None, "x")
    exclude(tmp_path, "s2", None, "x")
    assert take_back(tmp_path, 2).sweep_id == "s2"
    assert exclude(tmp_path, "s3", None, "x").number == 3
    for number in (1, 3):
        take_back(tmp_path, number)
    assert numbers(tmp_path) == []
    assert exclude(tmp_path, "s1", None, "x").number == 4


@pytest.mark.slow
def test_of_many_at_once_none_is_lost(tmp_path: Path) -> None:
    def one(number: int) -> int:
        made = exclude(tmp_path, f"s{number}", None, "x")
        return take_back(tmp_path, made.number).number if number % 4 == 0 else made.number

    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(one, range(24)))
    assert sorted(given) == list(range(1, 25))
    kept = {one.sweep_id for one in read_exclusions(tmp_path).entries}
    assert kept == {f"s{number}" for number in range(24) if number % 4}


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "x" * 201, "\x1b[2J", "\ud800"])
def test_a_reason_is_one_line(tmp_path: Path, reason: str) -> None:
    with pytest.raises(UsageError, match="reason"):
        exclude(tmp_path, "s1", None, reason)
    assert exclude(tmp_path, "s1", None, " " + "x" * 200 + " ").number == 1


@pytest.mark.parametrize("pattern", ["", "x" * 501, "a\nb"])
def test_a_pattern_is_a_name(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(UsageError, match="pattern"):
        exclude(tmp_path, "s1", pattern, "x")


def test_the_same_is_excluded_once(tmp_path: Path) -> None:
    exclude(tmp_path, "s1", None, "the first reason")
    with pytest.raises(UsageError, match=r"exclusion 1 .*the first reason"):
        exclude(tmp_path, "s1", None, "another")
    assert exclude(tmp_path, "s1", "a", "x").number == 2


def test_there_are_no_more_than_can_be_read(tmp_path: Path) -> None:
    exclude(tmp_path, "s", None, "x")
    content = json.loads((tmp_path / "exclusions.json").read_text())
    (first,) = content["exclusions"]
    many = [{**first, "number": n, "sweep_id": f"s{n}"} for n in range(1, MAX_EXCLUSIONS + 1)]
    content = {"next_number": MAX_EXCLUSIONS + 1, "exclusions": many}
    (tmp_path / "exclusions.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=f"{MAX_EXCLUSIONS} exclusions"):
        exclude(tmp_path, "t", None, "x")
    assert len(numbers(tmp_path)) == MAX_EXCLUSIONS


def test_a_damaged_file_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "exclusions.json").write_text("{half")
    for change in (lambda: exclude(tmp_path, "s1", None, "x"), lambda: take_back(tmp_path, 1)):
        with pytest.raises(AnalysisError, match="exclusions"):
            change()
    assert (tmp_path / "exclusions.json").read_text() == "{half"


def test_an_unknown_number_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="existing: none"):
        take_back(tmp_path, 1)
    exclude(tmp_path, "s1", None, "x")
    with pytest.raises(UsageError, match="existing: 1"):
        take_back(tmp_path, 7)


def test_a_lock_that_is_never_let_go_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(small_files, "_PATIENCE_S", 0.0)
    exclude(tmp_path, "s1", None, "x")
    with open_lease(tmp_path / ".exclusions.json.lock") as file:
        assert wait_for_lock(file, lambda: True)
        with pytest.raises(StoreError, match="locked"):
            exclude(tmp_path, "s2", None, "x")
    assert numbers(tmp_path) == [1]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(StoreError, match="cannot be written"):
        exclude(tmp_path / "results", "s1", None, "x")
