import json
from pathlib import Path

import polars as pl
import pytest
from stored_part import part_of, write_part

from fleetrank.analysis.errors import AnalysisError, DamagedPartError, NoDataError
from fleetrank.analysis.stored.columns import READ_SCHEMA, SCHEMA
from fleetrank.analysis.stored.load import load_measurements, valid_attempts


@pytest.fixture
def results(tmp_path: Path, make_attempts) -> Path:
    for sweep, origin in (("s1", "measured"), ("s2", "simulated")):
        rows = make_attempts([{"origin": origin, "samples_ns": [1, 2]}]).collect()
        rows.drop("sweep_id").pipe(write_part, part_of(tmp_path, sweep))
    return tmp_path


def test_sweep_comes_from_the_folder_and_simulated_rows_stay_out(results: Path) -> None:
    frame = load_measurements(results).collect()
    assert frame["sweep_id"].to_list() == ["s1"]
    assert dict(frame.schema) == READ_SCHEMA


def test_simulated_rows_enter_when_asked_for(results: Path) -> None:
    frame = load_measurements(results, origins=("measured", "simulated")).collect()
    assert sorted(frame["sweep_id"]) == ["s1", "s2"]


def test_column_an_older_file_lacks_is_null(results: Path) -> None:
    part = results / "measurements" / "sweep_id=s1" / "part-000000000000.parquet"
    pl.read_parquet(part).drop("energy_mj").pipe(write_part, part)
    assert load_measurements(results).collect()["energy_mj"].to_list() == [None]


def test_one_sweep_is_scanned_alone(results: Path) -> None:
    frame = load_measurements(results, sweep="s2", origins=("simulated",)).collect()
    assert frame["sweep_id"].to_list() == ["s2"]


def test_unknown_sweep_is_told_with_those_known(results: Path) -> None:
    with pytest.raises(NoDataError, match=r"no sweep 'other'.*known are s1, s2"):
        load_measurements(results, sweep="other")


def test_several_sweeps_are_scanned_together(results: Path) -> None:
    origins = ("measured", "simulated")
    frame = load_measurements(results, sweep=["s2", "s1", "s2"], origins=origins).collect()
    assert sorted(frame["sweep_id"]) == ["s1", "s2"]


def test_each_of_several_sweeps_must_have_rows(results: Path) -> None:
    with pytest.raises(NoDataError, match=r"no sweep 's22'.*did you mean 's2'"):
        load_measurements(results, sweep=("s1", "s22"))


def test_an_empty_list_of_sweeps_does_not_select_all(results: Path) -> None:
    with pytest.raises(AnalysisError, match="empty"):
        load_measurements(results, sweep=[])


@pytest.mark.thorough
@pytest.mark.parametrize("sweep", ["s*", "?1", "[s]1", "..", "s1/../sweep_id=s1", ""])
def test_sweep_is_neither_a_pattern_nor_a_path(results: Path, sweep: str) -> None:
    with pytest.raises(NoDataError, match="known are s1, s2"):
        load_measurements(results, sweep=sweep)


def write_parts(folder: Path, frame: pl.DataFrame, ranges: list[tuple[int, int]]) -> None:
    for start, end in ranges:
        frame[start:end].drop("sweep_id").pipe(write_part, folder / f"part-{start:012d}.parquet")


def test_a_part_that_is_not_listed_is_not_read(tmp_path: Path, make_attempts) -> None:
    frame = make_attempts([{"repeat": n} for n in range(5)]).collect()
    folder = tmp_path / "measurements" / "sweep_id=s1"
    write_parts(folder, frame, [(0, 2), (2, 5)])
    (folder / "part-000000000009.parquet").write_bytes(next(folder.iterdir()).read_bytes())
    assert load_measurements(tmp_path).collect()["repeat"].to_list() == [0, 1, 2, 3, 4]


def test_parts_of_two_sweeps_do_not_cover_each_other(tmp_path: Path, make_attempts) -> None:
    frame = make_attempts([{"repeat": n} for n in range(4)]).collect()
    for sweep, ranges in (("s1", [(0, 4)]), ("s2", [(0, 2), (2, 4)])):
        write_parts(tmp_path / "measurements" / f"sweep_id={sweep}", frame, ranges)
    assert load_measurements(tmp_path).collect().height == 8


def test_damaged_part_is_told_by_its_reader(results: Path) -> None:
    part_of(results, "s1").write_bytes(b"PAR1")
    with pytest.raises(DamagedPartError, match="is damaged"):
        load_measurements(results)


def test_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match="no measurements"):
        load_measurements(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"schema_version": "one"}'])
def test_damaged_schema_record_is_told(results: Path, content: str) -> None:
    (results / "schema.json").write_text(content)
    with pytest.raises(AnalysisError) as found:
        load_measurements(results)
    assert str(results / "schema.json") in found.value.message


def test_newer_schema_is_refused_and_the_present_one_read(results: Path) -> None:
    (results / "schema.json").write_text(json.dumps({"schema_version": 2}))
    with pytest.raises(AnalysisError, match="upgrade fleetrank"):
        load_measurements(results)
    (results / "schema.json").write_text(json.dumps({"schema_version": 1}))
    assert load_measurements(results).collect().height == 1


def test_samples_are_not_read_for_a_summary(results: Path) -> None:
    plan = load_measurements(results).select("model").explain()
    assert "samples_ns" not in plan
    assert f"2/{len(SCHEMA)} COLUMNS" in plan


def kept(frame: pl.LazyFrame) -> list[tuple[object, ...]]:
    columns = ("sweep_id", "repeat", "attempt")
    return sorted(valid_attempts(frame).select(columns).collect().rows())


def test_last_ok_attempt_of_each_repeat_counts(make_attempts) -> None:
    frame = make_attempts(
        [
            {"repeat": 0, "attempt": 0, "status": "failed"},
            {"repeat": 0, "attempt": 1},
            {"repeat": 0, "attempt": 2},
            {"repeat": 1, "attempt": 0},
            {"repeat": 1, "attempt": 1, "status": "failed"},
        ]
    )
    assert kept(frame) == [("s1", 0, 2), ("s1", 1, 0)]


def test_newest_sweep_counts_unless_it_only_failed(make_attempts) -> None:
    old, new = {"sweep_id": "z", "started_utc": 0}, {"sweep_id": "a", "started_utc": 1}
    assert kept(make_attempts([old, new])) == [("a", 0, 0)]
    assert kept(make_attempts([old, new | {"status": "failed"}])) == [("z", 0, 0)]


def test_newest_is_decided_for_each_model_and_platform(make_attempts) -> None:
    frame = make_attempts(
        [
            {"sweep_id": "old", "model": "a", "started_utc": 0},
            {"sweep_id": "old", "model": "b", "started_utc": 0},
            {"sweep_id": "new", "model": "b", "started_utc": 1},
        ]
    )
    found = valid_attempts(frame).select("model", "sweep_id").sort("model").collect()
    assert found.rows() == [("a", "old"), ("b", "new")]


def test_newest_is_decided_for_each_workload(make_attempts) -> None:
    sweeps = [("s1", "decode@8", 1), ("s1", "decode@16", 1), ("s2", "decode@8", 2)]
    frame = make_attempts(
        {"model": "a", "sweep_id": sweep, "workload": workload, "repeat": at}
        for sweep, workload, at in sweeps
    )
    kept = valid_attempts(frame).select("sweep_id", "workload").collect().rows()
    assert sorted(kept) == [("s1", "decode@16"), ("s2", "decode@8")]


def test_validating_twice_changes_nothing(make_attempts) -> None:
    frame = make_attempts(
        [{"sweep_id": f"s{n % 2}", "repeat": n, "started_utc": n} for n in range(6)]
    )
    assert kept(valid_attempts(frame)) == kept(frame)
